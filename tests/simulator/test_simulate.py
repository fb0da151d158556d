"""The simulator: the cache model by cases worked out by hand, replays, and the optimum."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import caching
from bench.cache.contest import (
    BEST_POET,
    FLOOR,
    LENT,
    OPTIMUM,
    OURS,
    README_POET,
    measure,
)
from bench.cache.sessions import MODELS, Session, agent, retrieved, schemas
from bench.cache.table import tables
from bench.measure import Figure
from muntin import Exact, InvalidInput, Message, Profile, Slots, assistant, system, tool, user
from muntin.core.parts import ToolCall
from muntin.core.planning.window import Breakpoint
from muntin.core.profile import Caching
from muntin.simulator import Block, Cache, Request, simulate, simulate_trace
from muntin.simulator.cache import cacheable
from muntin.simulator.optimum import Point, optimum
from muntin.simulator.replay import frontier_policy, trace_of
from muntin.simulator.requests import Blocks, Made, usual_marks
from muntin.simulator.run import Replay
from tests.paths import TRACES

# https://platform.claude.com/docs/en/build-with-claude/prompt-caching: Sonnet 4.5
CLAUDE = Caching(1_024, 1.25, 0.1, breakpoints=4, lookback=20, ttl=300)
# https://developers.openai.com/api/docs/guides/prompt-caching: before and since GPT-5.6
GPT_5 = Caching(1_024, 1.0, 0.1, granularity=128, ttl=300)
GPT_56 = Caching(1_024, 1.25, 0.1, breakpoints=4, ttl=1_800)


def blocks(*sizes: int, start: int = 0) -> tuple[Block, ...]:
    return tuple(Block(start + number, size) for number, size in enumerate(sizes))


def used(rules: Caching, *requests: Request) -> list[tuple[int, int, int]]:
    cache = Cache(rules)
    found = [cache.send(request) for request in requests]
    return [(usage.read, usage.written, usage.uncached) for usage in found]


# Automatic caching of the longest prefix.


def test_an_automatic_cache_reads_the_common_prefix_in_steps_of_128():
    first = Request(blocks(1_000, 500))
    second = Request((*blocks(1_000, 500), Block("new", 200)))
    # 1,500 tokens are 1,024 and three steps of 128: 1,408. 1,700 are 1,664 and 36 more.
    assert used(GPT_5, first, second) == [(0, 1_408, 92), (1_408, 256, 36)]


def test_an_automatic_cache_reads_nothing_below_its_minimum():
    short = Request(blocks(1_023))
    assert used(GPT_5, short, short) == [(0, 0, 1_023), (0, 0, 1_023)]
    exact = Request(blocks(1_024))
    assert used(GPT_5, exact, exact) == [(0, 1_024, 0), (1_024, 0, 0)]


def test_an_automatic_cache_reads_up_to_the_first_difference():
    first = Request(blocks(2_000, 1_000, 1_000))
    second = Request((Block(0, 2_000), Block("changed", 1_000), Block(2, 1_000)))
    # The first 2,000 are shared: 1,024 and seven steps; the last block is shared in vain.
    assert used(GPT_5, first, second)[1] == (1_920, 2_048, 32)


def test_an_older_prefix_is_found_too():
    short, other, long = (
        Request(blocks(2_000)),
        Request((Block("other", 2_000),)),
        Request(blocks(2_000, 3_000)),
    )
    assert used(GPT_5, short, other, long)[2][0] == 1_920


# Marks, with a look-back.


def test_only_what_is_marked_is_written_and_the_rest_is_plain_input():
    request = Request(blocks(2_000, 500), marks=(1,))
    assert used(CLAUDE, request, request) == [(0, 2_000, 500), (2_000, 0, 500)]


def test_a_prefix_below_the_minimum_is_silently_not_cached():
    request = Request(blocks(1_000, 500), marks=(1,))
    assert used(CLAUDE, request, request) == [(0, 0, 1_500), (0, 0, 1_500)]


def test_the_cost_is_a_quarter_more_to_write_and_a_tenth_to_read():
    cache = Cache(CLAUDE)
    request = Request(blocks(2_000, 500), marks=(1,))
    assert cache.send(request).cost == 2_000 * 1.25 + 500
    assert cache.send(request).cost == pytest.approx(2_000 * 0.1 + 500)


def test_a_growing_conversation_reads_all_it_wrote():
    first = Request(blocks(2_000, 100), marks=(2,))
    second = Request(blocks(2_000, 100, 50, 60), marks=(4,))
    assert used(CLAUDE, first, second) == [(0, 2_100, 0), (2_100, 110, 0)]


@pytest.mark.parametrize(("added", "read"), [(19, 2_000), (20, 0)])
def test_a_read_looks_at_twenty_positions_the_mark_among_them(added: int, read: int):
    first = Request(blocks(2_000), marks=(1,))
    second = Request(blocks(2_000, *[10] * added), marks=(1 + added,))
    assert used(CLAUDE, first, second)[1][0] == read


def test_a_second_mark_extends_the_look_back():
    first = Request(blocks(2_000), marks=(1,))
    second = Request(blocks(2_000, *[10] * 30), marks=(15, 31))
    assert used(CLAUDE, first, second)[1] == (2_000, 300, 0)


def test_results_that_follow_each_other_are_one_position():
    first = Request(blocks(2_000), marks=(1,))
    results = [Block(("result", n), 10, run=n > 0) for n in range(40)]
    second = Request((*blocks(2_000), *results), marks=(41,))
    assert used(CLAUDE, first, second)[1] == (2_000, 400, 0)


def test_the_look_back_finds_what_was_written_not_what_was_the_same():
    first = Request(blocks(2_000, 1_000, 1_000), marks=(3,))
    changed = Request((*blocks(2_000, 1_000), Block("changed", 1_000)), marks=(3,))
    assert used(CLAUDE, first, changed)[1] == (0, 4_000, 0)


def test_the_longest_of_several_marks_is_read():
    first = Request(blocks(2_000, 1_000), marks=(1, 2))
    second = Request((Block(0, 2_000), Block("changed", 900)), marks=(1, 2))
    assert used(CLAUDE, first, first, second) == [(0, 3_000, 0), (3_000, 0, 0), (2_000, 900, 0)]


def test_more_marks_than_the_provider_takes_are_an_error():
    request = Request(blocks(*[2_000] * 5), marks=(1, 2, 3, 4, 5))
    with pytest.raises(InvalidInput, match="5 cache marks; the provider takes 4"):
        Cache(CLAUDE).send(request)
    with pytest.raises(InvalidInput, match="outside of a request of 1 blocks"):
        Cache(CLAUDE).send(Request(blocks(10), marks=(2,)))


# Marks that must match exactly.


def test_an_exact_match_finds_nothing_between_its_marks():
    first = Request(blocks(2_000), marks=(1,))
    moved = Request(blocks(2_000, 50), marks=(2,))
    kept = Request(blocks(2_000, 50, 60), marks=(1, 3))
    assert used(GPT_56, first, moved) == [(0, 2_000, 0), (0, 2_050, 0)]
    assert used(GPT_56, first, kept)[1] == (2_000, 110, 0)


def test_of_many_marks_the_latest_four_are_written_and_the_latest_eighty_read():
    many = Request(blocks(*[2_000] * 6), marks=(1, 2, 3, 4, 5, 6))
    second = Request(blocks(*[2_000] * 2), marks=(1, 2))
    third = Request(blocks(*[2_000] * 3), marks=(1, 2, 3))
    assert used(GPT_56, many, second)[1][0] == 0
    assert used(GPT_56, many, third)[1][0] == 6_000
    first = Request(blocks(2_000), marks=(1,))
    reach = Request(blocks(2_000, *[1] * 79), marks=tuple(range(1, 81)))
    beyond = Request(blocks(2_000, *[1] * 80), marks=tuple(range(1, 82)))
    assert used(GPT_56, first, reach)[1][0] == 2_000
    assert used(GPT_56, first, beyond)[1][0] == 0


# Time.


@pytest.mark.parametrize("rules", [CLAUDE, GPT_5])
def test_a_cache_lives_for_its_time_and_a_read_renews_it(rules: Caching):
    sent = [Request(blocks(1_024), marks=(1,), at=at) for at in (0, 300, 600, 901)]
    assert [read for read, _, _ in used(rules, *sent)] == [0, 1_024, 1_024, 0]


# Windows as blocks.

CALL = ToolCall("c1", "search", '{"q": "x"}')


def test_blocks_are_hashed_as_tools_then_system_then_messages():
    made = Blocks(Profile.for_model("anthropic/claude-sonnet-4-5"), len).of(
        [user("hi"), system("be brief"), assistant("yes")], ["a", "b", "c"], [{"name": "t"}]
    )
    assert [block.source for block in made.blocks] == ["tools", "b", "a", "c"]
    assert made.places == (-1, 1, 0, 2)
    made = Blocks(Profile.for_model("openai/gpt-5"), len).of(
        [user("hi"), system("be brief")], ["a", "b"]
    )
    assert [block.source for block in made.blocks] == ["a", "b"]


def test_text_calls_and_results_are_blocks_and_runs_of_results_one_position():
    second = ToolCall("c2", "search", '{"q": "y"}')
    messages = [
        user("find"),
        assistant("I look.", tool_calls=[CALL, second]),
        tool("c1", "found"),
        tool("c2", "nothing"),
    ]
    made = Blocks(None, len).of(messages, ["history"] * 4)
    placed = zip(made.places, made.blocks, strict=True)
    assert [(place, block.tokens, block.run) for place, block in placed] == [
        (0, 4, False),
        (1, 7, False),
        (1, 32, False),
        (2, 5, False),
        (3, 7, True),
    ]


def test_what_the_wire_adds_is_in_the_blocks():
    profile = Profile.for_model("anthropic/claude-sonnet-4-5")
    slots = Slots(1_000, tokenizer=len, profile=profile)
    slots.add("history", [assistant("Hello!"), user("find"), assistant(tool_calls=[CALL])])
    window = slots.render()
    made = Blocks(profile, len).of_window(window)
    assert sum(block.tokens for block in made.blocks) == window.tokens
    assert [block.source for block in made.blocks] == ["lead", *["history"] * 4]


def test_a_breakpoint_is_a_mark_behind_its_message():
    slots = Slots(100_000, tokenizer=len)
    slots.add("system", "s" * 2_000)
    slots.add("history", [user("a" * 1_000), assistant("b", tool_calls=[CALL]), tool("c1", "r")])
    window = dataclasses.replace(slots.render(), breakpoints=(Breakpoint(1), Breakpoint(3)))
    profile = Profile.for_model("anthropic/claude-sonnet-4-5")
    run = simulate([window, window], profile, caching=CLAUDE, tokenizer=len)["windows"]
    # Three messages, the third with text and a call: all but the result, one token.
    assert [(step.read, step.written, step.uncached) for step in run.steps] == [
        (0, 3_017, 1),
        (3_017, 0, 1),
    ]


def test_unmarked_requests_are_marked_behind_the_system_text_and_at_the_end():
    def made(size: int) -> Made:
        return Made((Block("s", 1, source="system"), *blocks(*[1] * size)), tuple(range(size + 1)))

    assert usual_marks(made(10), CLAUDE) == (1, 11)
    assert usual_marks(made(50), CLAUDE) == (1, 13, 32, 51)
    assert usual_marks(made(10), GPT_5) == ()
    assert usual_marks(made(10), CLAUDE, 5) == (1, 5)
    assert usual_marks(made(30), GPT_56) == (1, *range(11, 32))


def test_a_changed_slot_is_named_as_the_cause():
    def window(text: str):
        slots = Slots(100_000, tokenizer=len)
        slots.add("system", "s" * 2_000)
        slots.add("weather", text)
        slots.add("history", [user("a" * 100)])
        return slots.render()

    profile = Profile.for_model("openai/gpt-5")
    windows = [window("sunny"), window("sunny"), window("rainy")]
    run = simulate(windows, profile, caching=GPT_5, tokenizer=len)["windows"]
    assert [(step.diverged, step.cause) for step in run.steps] == [
        (None, None),
        (None, None),
        (1, "weather changed"),
    ]
    assert run.steps[2].read == 1_920
    late = simulate(windows[:2], profile, caching=GPT_5, tokenizer=len, pause=301)["windows"]
    assert late.steps[1].cause == "expired"


# Replays.


def chat(turns: int, size: int = 100) -> list[Message]:
    """A conversation of equal turns, system text in front."""
    messages = [system("s" * 1_024)]
    for turn in range(turns):
        messages += [user(f"{turn:>{size}}"), assistant(f"{turn:<{size}}")]
    return messages


def replayed(messages, budget=2_500, **options):
    options = {"caching": CLAUDE, "tokenizer": len, "policies": ("exact", "full"), **options}
    return simulate_trace(messages, budget=budget, model="anthropic/claude-sonnet-4-5", **options)


def test_a_full_history_reads_everything_but_what_is_new():
    run = replayed(chat(30))["full"]
    assert [step.tokens for step in run.steps[:3]] == [1_124, 1_324, 1_524]
    assert all(new.read == old.tokens for old, new in pairwise(run.steps))
    assert run.breaks == 0
    assert run.retention == 1.0


def test_exact_trimming_reads_only_the_system_text_once_it_trims():
    run = replayed(chat(30))["exact"]
    full = [step for step in run.steps if step.turn > 8]
    assert {(step.read, step.cause) for step in full} == {(1_024, "history trimmed")}
    assert run.retained < replayed(chat(30))["full"].retained


def test_a_function_is_a_policy():
    def last_three(messages, budget):
        assert budget == 2_500
        return [messages[0], *messages[-3:]]

    run = replayed(chat(10), policies=(last_three,))["last_three"]
    assert [step.retained for step in run.steps] == [100, *[300] * 9]
    named = replayed(chat(10), policies={"three": last_three, "all": "full"})
    assert [each.policy for each in named.runs] == ["three", "all"]


def test_policies_that_cannot_be_told_apart_are_an_error():
    with pytest.raises(InvalidInput, match="two policies are called 'full'"):
        replayed(chat(2), policies=("full", "full"))
    with pytest.raises(InvalidInput, match="unknown policy 'best'"):
        replayed(chat(2), policies=("best",))


def test_steps_send_one_request_before_each_answer():
    messages = [
        system("s" * 1_024),
        user("find"),
        assistant(tool_calls=[CALL]),
        tool("c1", "found"),
        assistant("Here."),
        user("thanks"),
    ]
    assert len(replayed(messages)["full"].steps) == 2
    steps = replayed(messages, steps=True)["full"].steps
    assert [step.turn for step in steps] == [0, 0, 1]
    assert [step.read for step in steps] == [0, 1_028, 1_049]


def test_volatile_text_is_sent_once_and_the_history_before_it_is_read():
    run = replayed(chat(5), volatile=["v" * 300, "w" * 200], policies=("full",))["full"]
    assert [step.tokens for step in run.steps] == [1_424, 1_524, 1_824, 1_924, 2_224]
    assert [step.read for step in run.steps] == [0, 1_124, 1_324, 1_524, 1_724]
    assert [step.retained for step in run.steps] == [100, 300, 500, 700, 900]
    assert [step.uncached for step in run.steps] == [300, 200, 300, 200, 300]
    assert run.breaks == 0


def test_volatile_text_that_cannot_fit_is_an_error():
    with pytest.raises(InvalidInput, match=r"volatile text 1 has 626 tokens, .*\(625\)"):
        replayed(chat(5), volatile=["v" * 625, "w" * 626])


def test_a_trace_needs_a_user_and_says_which_message_is_wrong():
    with pytest.raises(InvalidInput, match="at least one user message"):
        trace_of([system("x")])
    with pytest.raises(InvalidInput, match="message 1 of the trace: unknown role 'robot'"):
        trace_of([user("x"), {"role": "robot", "content": "y"}])


@pytest.mark.parametrize("pause", [-1, float("nan"), "30", [], [30, -1]])
def test_a_pause_is_a_number_of_seconds(pause):
    with pytest.raises(InvalidInput, match="pause must be"):
        replayed(chat(2), pause=pause)


def test_several_pauses_are_taken_in_turn():
    run = replayed(chat(7), pause=[30, 301, 30], policies=("full",))["full"]
    assert [step.cause == "expired" for step in run.steps] == [
        *(False, False, True),
        *(False, False, True, False),
    ]
    # A request after a long pause costs the optimum as much as the policy.
    steady, late = (replayed(chat(60), pause=pause)["exact"] for pause in (30, [30, 301]))
    assert steady.best is not None
    assert late.best is not None
    assert steady.best < late.best <= late.cost * 1.001


def test_retrieval_in_front_of_the_conversation_leaves_only_the_system_text_to_read():
    def in_front(messages: Sequence[Message], budget: int) -> list[Message]:
        first, *said, docs = messages
        return [first, docs, *said]

    texts = [f"{n} found" for n in range(8)]
    run = replayed(chat(8), volatile=texts, policies={"front": in_front})["front"]
    head = run.steps[0].read + run.steps[0].written
    assert {step.read for step in run.steps[1:]} == {head}


def test_a_model_without_rules_is_an_error():
    with pytest.raises(InvalidInput, match="pass caching="):
        simulate_trace([user("x")], budget=10, model="nobody/nothing", policies=("full",))


# The result.


def test_the_result_adds_up_and_is_plain_json():
    result = replayed(chat(20), policies=("exact", "full"))
    data = json.loads(json.dumps(result.to_dict()))
    for policy in data["policies"]:
        steps = policy["steps"]
        for key in ("tokens", "read", "written", "uncached"):
            assert policy[key] == sum(step[key] for step in steps)
        assert policy["tokens"] == policy["read"] + policy["written"] + policy["uncached"]
        assert policy["dollars"] == pytest.approx(3 * policy["cost"] / 1_000_000)
    assert data["budget"] == 2_500
    assert data["rules"]["lookback"] == 20


def test_the_table_has_a_line_for_each_policy():
    lines = str(replayed(chat(20))).splitlines()
    assert lines[0] == "20 requests, anthropic/claude-sonnet-4-5, budget 2,500"
    assert [line.split()[0] for line in lines[4:]] == ["exact", "full"]
    with pytest.raises(KeyError, match="no policy 'best'"):
        replayed(chat(2))["best"]


def test_the_picture_is_one_page_that_loads_nothing(tmp_path):
    def sly(messages, budget):
        return messages

    result = replayed(chat(900), policies={"<b>": sly, "exact": "exact"}, best=False)
    result.save(tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text()
    assert page.count("<svg") == 3
    assert "<b>" not in page
    assert "http" not in page
    assert len(page) < 100_000
    with pytest.raises(InvalidInput, match=r"saved as \.html"):
        result.save(tmp_path / "out.png")


# The optimum.

SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=7)
RULES = st.sampled_from(
    [
        Caching(1, 1.25, 0.1, breakpoints=4, lookback=20),
        Caching(4, 1.0, 0.1),
        Caching(8, 1.25, 0.1, breakpoints=4),
        Caching(4, 2.0, 0.5, granularity=3),
    ]
)


def everything(replay: Replay):
    """Yield every sequence of frontiers that never moves back and fits, with cost and tokens."""
    points, starts = replay.points(), replay._starts()
    choices = []
    first = 0
    for point in points:
        while first < point.turn and point.sent - starts[first] > point.limit:
            first += 1
        choices.append(range(first, point.turn + 1))
    for frontiers in product(*choices):
        if all(a <= b for a, b in pairwise(frontiers)):
            places = [replay.trace.turns[turn] if turn else 0 for turn in frontiers]
            run = replay.run("any", frontier_policy(places))
            yield frontiers, run.cost, run.retained


@settings(max_examples=40, deadline=None)
@given(
    SIZES,
    RULES,
    st.integers(0, 6),
    st.integers(12, 44),
    st.lists(st.integers(0, 3), max_size=3),
    st.floats(0, 1),
)
def test_the_optimum_is_the_best_of_all_sequences(sizes, rules, head, budget, extra, wanted):
    messages = [system("s" * head)] if head else []
    for turn, size in enumerate(sizes):
        messages += [user(chr(97 + turn) * size), assistant(chr(65 + turn) * (10 - size))]
    replay = Replay(
        trace_of(messages, ["v" * size for size in extra]),
        budget,
        profile=Profile.for_model("anthropic/claude-sonnet-4-5"),
        rules=rules,
        tokenizer=len,
    )
    found = list(everything(replay))
    most = max(kept for _, _, kept in found)
    least = min(kept for _, _, kept in found)
    target = least + wanted * (most - least)
    best = replay.optimum(target)
    true = min(cost for _, cost, kept in found if kept >= target - 1e-9)
    assert best.retained >= target - 1e-9
    costs = {way: (cost, kept) for way, cost, kept in found}
    assert (best.cost, best.retained) == pytest.approx(costs[best.frontiers])
    assert best.bound <= true + 1e-6 <= best.cost + 2e-6
    free = replay.optimum(0)
    assert free.cost == pytest.approx(min(cost for _, cost, _ in found))


def test_the_optimum_cuts_far_and_rarely():
    points = [Point(n, 10 * n + 10, 10 * n, 10 * n + 10, 10 * n + 10, 100) for n in range(40)]
    starts = [10 * n for n in range(40)]
    rules = Caching(1, 1.25, 0.1)
    best = optimum(points, starts, 0, rules, 60)
    moves = sum(a != b for a, b in pairwise(best.frontiers))
    every_turn = optimum(points, starts, 0, rules, 87)
    assert moves <= 5
    assert best.cost < every_turn.cost
    assert best.retained >= 60


def test_a_run_is_held_against_the_optimum():
    result = replayed(chat(60))
    exact, full = result["exact"], result["full"]
    assert exact.best is not None
    assert exact.best <= exact.cost * 1.001
    assert full.best is None


def test_a_policy_that_keeps_more_than_its_budget_has_no_optimum():
    assert replayed(chat(60), policies={"all": lambda messages, _: messages})["all"].best is None


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "openai/gpt-5.6"])
def test_the_breakpoints_of_stepped_windows_find_all_that_was_written(model, steps):
    messages = [m for line in TRACES.read_text().splitlines()[:30] for m in _conversation(line)]
    result = simulate_trace(messages, budget=8_000, model=model, policies=("stepped",), steps=steps)
    run = result["stepped"]
    assert run.breaks > 5
    for old, new in pairwise(run.steps):
        if new.diverged is None:
            assert new.read == old.read + old.written
        else:
            assert new.read == run.steps[0].tokens - run.steps[0].retained  # the system text


def _conversation(line: str) -> list[Any]:
    messages: list[Any] = json.loads(line)["messages"]
    return messages if "airline-0-0" in line else messages[1:]


def test_the_benchmark_holds_all_policies_to_the_same_retention(capsys):
    session = Session("agent", agent(60), tools=schemas())
    rows = list(measure(session))
    capsys.readouterr()
    for model in MODELS:
        own, *others = [row for row in rows if row.model == model]
        assert own.policy == OURS
        assert all(abs(row.retained / own.retained - 1) <= 0.01 for row in others)
        costs = {row.policy: row.cost / own.cost for row in others}
        assert costs[OPTIMUM] <= 1.01 < costs[BEST_POET] + 0.05 < costs["muntin Exact()"]
    figures = list(caching.costs(session, rows))
    assert any(figure.peer == BEST_POET for figure in figures)
    assert OURS in caching.show(rows, figures)


def test_the_floor_of_the_benchmark_is_below_every_policy(capsys):
    texts = retrieved(40, 16_000)
    session = Session("agent", agent(40), volatile=texts, budget=16_000, peers=False)
    rows = list(measure(session))
    capsys.readouterr()
    for model in MODELS:
        costs = {row.policy: row.cost for row in rows if row.model == model}
        assert costs[FLOOR] < costs[LENT] <= costs[OPTIMUM] < costs[OURS]
        assert costs[FLOOR] < costs[BEST_POET] < costs[README_POET]


@pytest.mark.parametrize(("held", "bounds"), [(True, (2.0, None)), (False, (None, 2.0))])
def test_a_figure_says_whether_its_aim_is_reached(held, bounds):
    at_most, at_least = bounds
    figure = Figure(work="a", peer="b", ours=3, theirs=2, at_most=at_most, at_least=at_least)
    told = figure.to_dict()
    assert told["ratio"] == 1.5
    assert told["held"] is held
    assert ("at_most" in told) is (at_most is not None)


def test_the_tables_of_the_docs_are_those_of_the_recorded_run():
    page = (TRACES.parents[2] / "docs" / "simulator.md").read_text("utf-8")
    results = json.loads((TRACES.parents[2] / "bench" / "results.json").read_text("utf-8"))
    for table in tables(results["figures"]["caching"]):
        assert table in page


def test_a_recorded_conversation_is_replayed():
    messages = json.loads(TRACES.read_text().splitlines()[0])["messages"]
    result = simulate_trace(
        messages, budget=2_500, model="openai/gpt-5", caching=GPT_5, policies=(Exact(), "full")
    )
    assert result["full"].read_share > result["Exact()"].read_share
    assert cacheable(GPT_5, 1_300) == 1_280
