"""What holds for every window, whatever goes in: properties over larger random inputs."""

from __future__ import annotations

import json
import re
from collections import Counter as Bag
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import Exact, Frontier, Message, Pool, Reasoning, Slots, Stepped, Window, user
from muntin.core.report import SlotReport
from tests.core.planning.scenes import (
    STEADY,
    TOKENIZERS,
    Counting,
    Moment,
    Scene,
    Talk,
    by_slot,
    check_requests,
    grouped_scenes,
    number,
    opens_with_user,
    recount,
    scenes,
    talks,
)

ANY = scenes() | scenes(shapes=True) | grouped_scenes()


# The budget, and the sums.


@given(ANY)
def test_a_window_is_within_its_budget_or_says_that_it_is_not(scene: Scene) -> None:
    window = scene.window()
    assert window.over_budget == window.report.over_budget
    assert window.over_budget or window.tokens <= scene.budget
    if window.over_budget and scene.budget:
        assert window.tokens > scene.budget


@given(ANY)
def test_the_tokens_of_a_window_are_those_of_its_messages_and_tools(scene: Scene) -> None:
    window = scene.window()
    tokenizer = TOKENIZERS[scene.tokenizer]
    messages = recount(window.messages, tokenizer, user_first="profile" in scene.options)
    assert messages + window.report.tools_tokens == window.tokens


@given(ANY)
def test_the_report_adds_up_to_what_is_sent(scene: Scene) -> None:
    window = scene.window()
    report = window.report
    parts = sum(slot.tokens_kept for slot in report.slots)
    wire = report.tools_tokens + report.joined_tokens + report.lead_tokens + report.answer_tokens
    assert parts + wire == report.tokens == window.tokens
    for slot in report.slots:
        assert sum(d.tokens_asked for d in slot.decisions) == slot.tokens_asked
        assert sum(d.count for d in slot.decisions) == slot.messages_asked
        if scene.is_joined(slot.index):
            continue
        lines = [m for index, each in by_slot(window) for m in each if index == slot.index]
        lines = [message for message in lines if is_line(message)]
        told = recount(lines, TOKENIZERS[scene.tokenizer])
        assert sum(d.tokens_kept for d in slot.decisions) + told == slot.tokens_kept
        assert slot.messages_kept == window.origins.count(slot.index) - len(lines)


def is_line(message: Message) -> bool:
    """Say whether a message is a line that was put in: it says what is missing."""
    text = message.text
    return message.tool_call_id is None and text.startswith("[") and text.endswith("]")


@given(ANY)
def test_the_report_says_for_every_message_what_became_of_it(scene: Scene) -> None:
    window = scene.window()
    for slot in window.report.slots:
        covered = sorted(d.first for d in slot.decisions)
        assert len(set(covered)) == len(covered)
        for decision in slot.decisions:
            if decision.status == "kept":
                assert decision.reason in (None, "over_cap")
                assert decision.tokens_kept == decision.tokens_asked
            elif decision.status in ("dropped", "empty"):
                assert decision.reason is not None
                assert decision.tokens_kept == 0
            else:
                assert decision.status in ("trimmed", "short", "stubbed")
                assert decision.reason is not None
        statuses = {decision.status for decision in slot.decisions} - {"empty"}
        if slot.status == "kept":
            assert statuses == {"kept"}
        if slot.status == "dropped":
            assert statuses == {"dropped"}
        if slot.status == "empty":
            assert not statuses


# What is always there.


@given(scenes(tokenizers=STEADY) | scenes(shapes=True, tokenizers=STEADY))
def test_only_what_may_not_be_dropped_is_left_in_a_window_over_budget(scene: Scene) -> None:
    """Where a stepped conversation holds the question itself, it holds the input and the run."""
    assume(scene.has_input or scene.options.get("trimming") != Stepped())
    window = scene.window()
    assume(window.over_budget)
    callers = {
        call.id: (origin, number(message))
        for message, origin in zip(window.messages, window.origins, strict=True)
        for call in message.tool_calls
    }
    firm, left = set(), set()
    for message, origin in zip(window.messages, window.origins, strict=True):
        assert origin is not None
        options = scene.adds[origin][2]
        group = callers.get(message.tool_call_id or "", (origin, number(message)))
        left.add(group)
        is_system = scene.is_calm and message.role == "system"
        is_firm = options.get("required") or scene.is_input(origin) or scene.is_run(origin)
        if is_firm or is_system:
            firm.add(group)
    assert left == firm


@given(ANY)
def test_a_required_slot_loses_nothing_unless_its_characters_have_a_ceiling(scene: Scene) -> None:
    window = scene.window()
    left = dict(by_slot(window))
    capped_calls: dict[str, bool] = {}  # a result is trimmed with its call, in the slot of the call
    for report in window.report.slots:  # in window order
        options = scene.adds[report.index][2]
        capped = bool({"max_tokens", "max_ratio"} & options.keys())
        capped = capped and options["trim_behavior"] == "char"
        firm = options.get("required") and not capped
        sendable = False
        for message in scene.given(report.index):
            calls = {call.id for call in message.tool_calls}
            capped_calls |= dict.fromkeys(calls, capped)
            result = message.tool_call_id
            if result is None and not (message.text or calls or message.attachments):
                continue  # nothing to lose
            if result is not None and capped_calls.get(result, True):
                continue  # an orphan, or trimmed with its call
            sendable = True
            if firm:
                assert message in left[report.index]
        if options.get("required") and sendable:
            assert report.status != "dropped"


@given(ANY)
def test_system_text_is_whole_while_no_slot_has_a_priority(scene: Scene) -> None:
    assume(scene.is_calm)
    window = scene.window()
    left = dict(by_slot(window))
    for index, (_, _, options) in enumerate(scene.adds):
        capped = bool({"max_tokens", "max_ratio"} & options.keys())
        if scene.is_joined(index) or (capped and options["trim_behavior"] == "char"):
            continue
        for message in scene.given(index):
            if message.role == "system" and message.text and not scene.is_input(index):
                assert message in left[index]


@given(ANY, st.integers(1, 2_000))
def test_256_tokens_of_the_input_are_always_there(scene: Scene, size: int) -> None:
    """The line in a cut input says how much is missing; a shorter number may leave two tokens."""
    adds = [add for n, add in enumerate(scene.adds) if not scene.is_input(n)]
    scene = replace(scene, adds=[*adds, ("input", "i" * size, {})], tokenizer="characters")
    report = scene.window().report
    assert report["input"].tokens_kept >= min(size, 256) - 2
    if size <= 256:
        assert report["input"].status == "kept"


@given(scenes(shapes=True, ties=False, profiles=False, tokenizers=STEADY))
def test_a_slot_has_at_least_what_it_can_use_of_its_floor(scene: Scene) -> None:
    window = scene.window()
    assume(not window.report.fallback)
    asked = [n for n in range(len(scene.adds)) if scene.is_input(n)]
    assume(asked)
    for slot in window.report.slots:
        name, content, options = scene.adds[slot.index]
        if not slot.floor or slot.index in asked or scene.is_run(slot.index):
            continue
        limits = {"max_ratio": 1.0, "min_ratio": 0.0, "max_tokens": slot.floor}
        rules = {**options, **limits, "min_tokens": slot.floor, "priority": 1}
        others = [scene.adds[n] for n in asked]
        alone = replace(scene, adds=[(name, content, rules), *others]).window()
        (least,) = (each for each in alone.report.slots if each.index == 0)
        assert slot.tokens_kept >= least.tokens_kept, slot.name


# Priority.


@given(scenes(ties=False, profiles=False, tokenizers=STEADY), st.data())
def test_a_slot_with_a_higher_priority_never_shows_less(scene: Scene, data: Any) -> None:
    """The input has a place of its own at priority 0, so it is left out. Another slot has a
    priority too: the first one that any slot gets takes the protection of system text away."""
    able = [n for n in range(len(scene.adds)) if not scene.is_input(n) and scene.given(n)]
    assume(able)
    place = data.draw(st.sampled_from(able))
    name, content, options = scene.adds[place]
    assume(not scene.without(place).is_calm)
    higher = options.get("priority", 0) + data.draw(st.integers(1, 6))
    adds = [*scene.adds]
    adds[place] = name, content, {**options, "priority": higher}
    low, high = shown(scene.window(), place), shown(replace(scene, adds=adds).window(), place)
    for key, text in low.items():
        assert len(text) <= len(high[key])


def shown(window: Window, place: int) -> dict[int, str]:
    """Return the texts that a window shows of a slot, by the numbers of their messages."""
    return {
        number(message): message.text
        for message, origin in zip(window.messages, window.origins, strict=True)
        if origin == place
    }


@given(scenes(profiles=False, ties=False, tokenizers=STEADY))
def test_nothing_is_left_out_that_would_fit(scene: Scene) -> None:
    """What left before is not put back, though the message that left last was a larger one. Texts
    are cut between the characters that a person sees, which have up to 8 code points."""
    window = scene.window()
    assume(not window.over_budget)
    free = scene.budget - window.tokens
    for slot in window.report.slots:
        cut = [each for each in slot.decisions if each.reason in ("over_budget", "fallback")]
        dropped = [each for each in cut if each.status == "dropped" and each.rank is not None]
        last = max(dropped, key=lambda each: each.rank or 0, default=None)
        if slot.cap is not None and slot.tokens_kept + free > slot.cap:
            continue
        behavior = scene.adds[slot.index][2]["trim_behavior"]
        if behavior == "slot" and cut:
            assert slot.tokens_asked > free, slot.name
        elif behavior == "message" and last is not None:
            assert last.tokens_asked > free, slot.name
        elif cut and isinstance(scene.adds[slot.index][1], str):
            assert free < 8 + 3, slot.name


@given(grouped_scenes())
def test_slots_of_a_pool_have_no_more_than_the_pool_together(scene: Scene) -> None:
    pooled: dict[Pool, int] = {}
    for slot in scene.window().report.slots:
        pool = scene.adds[slot.index][2].get("pool")
        if pool is not None:
            pooled[pool] = pooled.get(pool, 0) + slot.tokens_kept
    assert all(tokens <= pool.tokens for pool, tokens in pooled.items())


@given(talks(parallel=2), st.integers(11, 99))
def test_what_is_better_protected_than_a_conversation_is_shown_as_if_nothing_were_remembered(
    talk: Talk, priority: int
) -> None:
    """Not beside a run or a question of more than half of the window. The run needs that half
    first, and how much of it a cut leaves unused differs; the question is cut to that half if it
    must be cut at all, and whether it must be differs with the size of the run."""
    talk = replace(talk, passages_priority=priority)
    for moment, window in talk.windows():
        asked = (window.report[name].tokens_asked for name in ("run", "input"))
        if max(asked) > talk.budget // 2:
            continue
        exact = talk.slots(moment, trimming=Exact()).render()
        for name in ("system", "passages"):
            assert window.report[name].tokens_kept >= exact.report[name].tokens_kept, moment.place


@given(scenes(limits=False, profiles=False, ties=False, tokenizers=STEADY), st.integers(1, 40))
def test_a_larger_budget_never_shows_less_of_the_best_protected_slot(
    scene: Scene, more: int
) -> None:
    _, content, options = scene.adds[-1]
    assume(not scene.is_input(len(scene.adds) - 1))
    scene.adds[-1] = ("best", content, {**options, "priority": 9, "position": 9, "tier": None})
    inputs = [n for n in range(len(scene.adds)) if scene.is_input(n)]
    scene = scene.without(*inputs)
    small, large = scene.window(), scene.window(scene.budget + more)
    assume(not small.over_budget)
    place = len(scene.adds) - 1
    less, all_of_it = shown(small, place), shown(large, place)
    for key, text in less.items():
        assert len(text) <= len(all_of_it[key])


@given(scenes(limits=False, profiles=False, ties=False, tokenizers=STEADY), st.integers(1, 40))
def test_a_larger_budget_never_shows_less_of_the_least_protected_slot(
    scene: Scene, more: int
) -> None:
    """What goes whole finds room all at once, and takes it from those below. So the slots above
    are texts that are cut by characters, which take what comes token by token."""
    adds = [
        (f"t{n}", text, {**options, "trim_behavior": "char", "required": False})
        for n, (_, text, options) in enumerate(scene.adds[:-1])
        if isinstance(text, str)
    ]
    assume(not scene.is_input(len(scene.adds) - 1))
    _, content, options = scene.adds[-1]
    least = {**options, "priority": -9, "position": 9, "tier": None, "required": False}
    scene = replace(scene, adds=[*adds, ("least", content, least)], tokenizer="characters")
    small, large = scene.window(), scene.window(scene.budget + more)
    less, all_of_it = shown(small, len(adds)), shown(large, len(adds))
    for key, text in less.items():
        assert len(text) <= len(all_of_it[key])


# What is dropped whole.


@given(scenes(places=False, profiles=False, shapes=True))
def test_a_window_is_the_same_without_what_was_dropped_whole_and_needed_nothing(
    scene: Scene,
) -> None:
    """The only slot with a priority takes the protection of system text away, and the last stepped
    conversation may hold the question itself, so both have a say even if they are dropped."""
    assume(scene.has_input or scene.options["trimming"] != Stepped())
    window = scene.window()
    gone = [
        slot.index
        for slot in window.report.slots
        if slot.status == "dropped"
        and not scene.is_run(slot.index)
        and not {"min_tokens", "min_ratio"} & scene.adds[slot.index][2].keys()
    ]
    rest = scene.without(*gone)
    assume(scene.budget and gone and rest.is_calm == scene.is_calm)
    without = rest.window()
    assert without.messages == window.messages
    assert (without.tokens, without.over_budget) == (window.tokens, window.over_budget)
    assert without.report.fallback == window.report.fallback


@given(talks(parallel=2), st.integers(0, 99), st.booleans())
def test_a_conversation_is_the_same_beside_a_document_that_never_fits(
    talk: Talk, priority: int, is_exact: bool
) -> None:
    options = {"trimming": Exact()} if is_exact else {}
    beside = alone = None
    for moment in talk.moments():
        slots = talk.slots(moment, beside, **options)
        slots.add("docs", "d" * (talk.budget + 1), priority=priority)
        beside = slots.render()
        alone = talk.slots(moment, alone, **options).render()
        assert beside.messages == alone.messages, moment.place


# The run.


@given(talks(turns=4, steps=8))
def test_every_call_of_the_run_is_in_view_while_any_turn_of_the_history_is(talk: Talk) -> None:
    for moment, window in talk.windows():
        if window.report["history"].tokens_kept:
            called = {call.id for message in moment.run for call in message.tool_calls}
            in_view = {call.id for message in window.messages for call in message.tool_calls}
            assert called <= in_view, moment.place


@given(talks(turns=4, steps=8))
def test_the_result_just_received_is_shown_while_any_turn_of_the_history_is(talk: Talk) -> None:
    for moment, window in talk.windows():
        if moment.run and window.report["history"].tokens_kept:
            check_newest(moment, window)


@given(talks(turns=3, steps=12, passages=False))
def test_the_result_just_received_is_shown_in_a_conversation_by_itself(talk: Talk) -> None:
    """A question of half of the window leaves less to the lines of a dozen calls and the newest
    results, so questions have a quarter of it at most."""
    turns = [turn._replace(question=min(turn.question, talk.budget // 4)) for turn in talk.turns]
    for moment, window in replace(talk, turns=tuple(turns)).windows():
        if moment.run:
            check_newest(moment, window)


def check_newest(moment: Moment, window: Window) -> None:
    """Fail unless the newest result is shown to half of what a quarter of the window allows."""
    newest, given = window.messages[-1], moment.run[-1]
    assert newest.tool_call_id == given.tool_call_id
    assert len(newest.text) >= min(len(given.text), window.report.budget // 4) / 2, moment.place


@given(talks(turns=3, steps=6))
def test_an_input_that_is_cut_stays_the_same_for_the_whole_turn(talk: Talk) -> None:
    """In the turn's later requests nothing more of it is cut, and nothing comes back."""
    asked: dict[int, str] = {}
    for moment, window in talk.windows():
        turn, step = moment.place
        (text,) = shown(window, 3).values()
        if step and window.input_cut and asked[turn] != moment.question.text:
            assert text == asked[turn], moment.place
        if window.input_cut:
            assert len(text) <= talk.budget // 2
        asked[turn] = text


EARLIER_CALLS = re.compile(r"\[(\d+) earlier calls? (?:are|is) not shown: look (\d+)\]")


@given(talks(turns=3, steps=12, parallel=3))
def test_a_line_says_truthfully_how_many_calls_of_a_turn_are_not_shown(talk: Talk) -> None:
    for moment, window in talk.windows():
        calls = [call.id for m in moment.conversation for call in m.tool_calls]
        shown = [call.id for m in window.messages for call in m.tool_calls]
        for place, message in enumerate(window.messages):
            told = EARLIER_CALLS.fullmatch(message.text)
            if told is None:
                continue
            first = [call.id for call in window.messages[place + 1].tool_calls]
            if not first:
                continue  # only the answer of the turn is left
            turn = first[0].partition(".")[0]
            of_turn = [call for call in calls if call.partition(".")[0] == turn]
            missing = [call for call in of_turn if call not in shown]
            assert [int(number) for number in told.groups()] == [len(missing)] * 2, moment.place
            assert of_turn[: len(missing)] == missing


@given(talks(turns=6, parallel=2))
def test_a_move_for_good_never_takes_the_newest_turn_of_the_history(talk: Talk) -> None:
    """Where calls of the run itself have left, all of the history has."""
    before = 0
    for moment, window in talk.windows():
        first = levels(window)[-1]
        asked = [n for n, message in enumerate(moment.history) if message.role == "user"]
        if first > before and asked:
            assert first <= asked[-1] or first > len(moment.history), moment.place
        before = first


# Between two moves.


def levels(window: Window) -> tuple[int, ...]:
    """Return how far the conversation has moved for good."""
    start = window.frontier.starts[-1]
    return start.cut, start.shorts, start.stubs, start.first


def is_steady(window: Window) -> bool:
    """Say whether a window shows all that the levels of its conversation let it show: it is not
    full, so no newest result was cut to a share of what is left."""
    report = window.report
    left_out = any(
        decision.status == "dropped" and decision.reason != "moved"
        for name in ("history", "run")
        for decision in report[name].decisions
    )
    for_this_turn = bool(window.frontier.starts[-1].this_turn.levels)
    is_full = window.tokens > report.budget - 16
    return not (is_full or left_out or for_this_turn or window.input_cut)


@given(talks(parallel=2))
def test_the_past_does_not_change_by_a_byte_between_two_moves(talk: Talk) -> None:
    """An input that was cut, what moved for one turn only, and what was left out for one window
    only are not part of what stays; nor is a question of more than half of the window, which the
    move of its run cuts when its turn is over."""
    for (_, before), (late, after) in pairwise(talk.windows()):
        if levels(before) != levels(after):
            continue
        if before.report["input"].tokens_asked > talk.budget // 2:
            continue
        if not is_steady(before) or not is_steady(after):
            continue
        then, now = conversation(before), conversation(after)
        assert now[: len(then)] == then, late.place


def conversation(window: Window) -> list[Message]:
    """Return the history, the input and the run as they are shown."""
    places = {slot.index for slot in window.report.slots if slot.name in TALK}
    pairs = zip(window.messages, window.origins, strict=True)
    return [message for message, origin in pairs if origin in places]


TALK = ("history", "input", "run")


@given(talks(parallel=2))
def test_nothing_changes_while_everything_that_is_new_has_room(talk: Talk) -> None:
    for (early, before), (late, after) in pairwise(talk.windows()):
        if not is_steady(before):
            continue
        then = conversation(before)
        new = late.conversation[len(early.conversation) :]
        beside = [slot for slot in after.report.slots if slot.name not in TALK]
        asked = sum(slot.tokens_asked for slot in beside)
        if asked + recount(then, Counting("len", len)) + recount(new, Counting("len", len)) <= (
            talk.budget
        ):
            assert conversation(after) == [*then, *new], late.place


@given(talks(parallel=2))
def test_levels_only_grow(talk: Talk) -> None:
    for (_, before), (late, after) in pairwise(talk.windows()):
        grown = zip(levels(before), levels(after), strict=True)
        assert all(old <= new for old, new in grown), late.place


@given(talks(parallel=2))
def test_a_restart_changes_nothing(talk: Talk) -> None:
    previous = None
    for moment, window in talk.windows():
        again = talk.slots(moment, previous).render()
        assert again.messages == window.messages, moment.place
        assert again.report == window.report
        previous = Frontier.from_dict(json.loads(json.dumps(again.frontier.to_dict())))


@given(talks(parallel=2))
def test_a_list_that_lost_what_had_left_the_window_gives_the_same_windows(talk: Talk) -> None:
    previous, gone = None, 0
    for moment, window in talk.windows():
        rest = moment._replace(history=moment.history[gone:])
        again = talk.slots(rest, previous).render()
        assert again.messages == window.messages, moment.place
        first = levels(window)[-1]
        asked = [n for n, m in enumerate(moment.conversation) if m.role == "user" and n <= first]
        previous, gone = again, asked[-1]


# Models.

PROFILES = ["anthropic/claude-sonnet-4-6", "openai/gpt-5.2", "ollama/llama3", "nobody/unknown"]


@given(scenes(shapes=True, profiles=False), st.sampled_from(PROFILES))
def test_the_window_is_the_same_for_every_model_that_counts_alike(
    scene: Scene, profile: str
) -> None:
    """Some models want the user's message first, and get one where the assistant's would be."""
    unnamed = scene.window()
    assume(opens_with_user(unnamed))
    assert scene.window(profile=profile).messages == unnamed.messages


@given(talks(parallel=2), st.sampled_from(PROFILES))
def test_a_conversation_is_the_same_for_every_model_that_counts_alike(
    talk: Talk, profile: str
) -> None:
    """Some models want the user's message first, and get one where the assistant's would be."""
    pairs = zip(talk.windows(profile=profile), talk.windows(), strict=True)
    for (moment, named), (_, unnamed) in pairs:
        assume(opens_with_user(unnamed))
        assert named.messages == unnamed.messages, moment.place


# Messages.


@given(ANY)
def test_messages_keep_their_order(scene: Scene) -> None:
    window = scene.window()
    for index, messages in by_slot(window):
        known = [number(message) for message in messages if not is_line(message)]
        if len(scene.given(index)) > 1:
            assert all(a < b for a, b in pairwise(known))
    if any("group" in options for _, _, options in scene.adds):
        return
    places = [report.index for report in window.report.slots]
    origins = [places.index(origin) for origin in window.origins if origin is not None]
    assert origins == sorted(origins)


@given(scenes())
def test_a_message_loses_only_an_end_of_its_text(scene: Scene) -> None:
    for index, messages in by_slot(scene.window()):
        originals = {number(message): message for message in scene.given(index)}
        keep = scene.adds[index][2].get("keep", "tail")
        for message in messages:
            original = originals[number(message)]
            if message == original or scene.is_input(index):
                continue
            assert replace(message, content=None) == replace(original, content=None)
            end = original.text.startswith if keep == "head" else original.text.endswith
            assert end(message.text)
            assert len(message.text) < len(original.text)
            assert reasoning(message) == reasoning(original)


def reasoning(message: Message) -> list[Reasoning]:
    parts = message.content if isinstance(message.content, tuple) else ()
    return [part for part in parts if isinstance(part, Reasoning)]


@given(scenes(shapes=True))
def test_a_shorter_message_has_both_ends_of_its_text_or_one_line_about_it(scene: Scene) -> None:
    for index, messages in by_slot(scene.window()):
        if scene.adds[index][2]["trim_behavior"] == "char":
            continue
        originals = {number(message): message for message in scene.given(index)}
        for message in messages:
            if is_line(message) or message.text == originals[number(message)].text:
                continue
            check_cut(message.text, originals[number(message)].text)


def check_cut(text: str, original: str) -> None:
    """Fail unless a text has one or both ends of another one, and a line about the rest."""
    if text in original:
        return
    lines = text.split("\n")
    (place,) = (n for n, line in enumerate(lines) if line.startswith("[") and "left out" in line)
    head, tail = "\n".join(lines[:place]), "\n".join(lines[place + 1 :])
    assert original.startswith(head)
    assert original.endswith(tail)
    assert len(head) + len(tail) < len(original)


@given(ANY)
def test_tool_groups_are_whole_and_no_result_stands_without_its_call(scene: Scene) -> None:
    window = scene.window()
    called: set[str] = set()
    for message in window.messages:
        called |= {call.id for call in message.tool_calls}
        assert message.tool_call_id is None or message.tool_call_id in called
    sent = {message.tool_call_id for message in window.messages}
    seen: set[str] = set()
    for report in window.report.slots:
        for message in scene.given(report.index):
            seen |= {call.id for call in message.tool_calls}
            if message.tool_call_id in called and message.tool_call_id in seen:
                assert message.tool_call_id in sent


@given(ANY)
def test_every_window_can_be_sent_to_every_provider(scene: Scene) -> None:
    check_requests(scene.window())


@given(talks(turns=3, parallel=3))
def test_every_window_of_a_conversation_can_be_sent_to_every_provider(talk: Talk) -> None:
    for _, window in talk.windows():
        check_requests(window)


# Pure.


@given(ANY)
def test_the_same_slots_give_the_same_window_however_often(scene: Scene) -> None:
    slots = scene.slots()
    first, second, fresh = slots.render(), slots.render(), scene.window()
    assert first == second == fresh
    assert first.report == second.report == fresh.report
    assert first.report.to_dict() == fresh.report.to_dict()
    assert str(first.report) == str(fresh.report)


@given(ANY)
def test_nothing_that_was_given_is_changed(scene: Scene) -> None:
    before = deepcopy(scene.adds)
    window = scene.window()
    str(window.report)
    assert scene.adds == before
    for (_, content, _), (_, old, _) in zip(scene.adds, before, strict=True):
        assert type(content) is type(old)


class Recording:
    """A tokenizer that remembers what it counted."""

    name = "recording"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


@given(ANY)
def test_every_text_is_counted_at_most_once(scene: Scene) -> None:
    counter = Recording()
    scene.window(tokenizer=counter)
    given = [m for n in range(len(scene.adds)) for m in scene.given(n)]
    texts = {message.text for message in given if isinstance(message.content, str)}
    times = Bag(counter.texts)
    for text in texts:
        if not any(is_piece(text, other) for other in texts - {text}):
            assert times[text] <= 1, text


def is_piece(text: str, other: str) -> bool:
    """Say whether a text may be what is left of another one: a part of it, or both ends."""
    places = range(len(text) + 1)
    ends = any(other.startswith(text[:n]) and other.endswith(text[n:]) for n in places)
    return text in other or ends


@given(
    st.integers(1, 400),
    st.integers(10, 60),
    st.booleans(),
    st.sampled_from(["message", "char", "slot"]),
)
def test_what_lies_beyond_any_fit_is_not_counted(
    budget: int, size: int, is_stepped: bool, behavior: Any
) -> None:
    counter = Recording()
    trimming = Stepped() if is_stepped else Exact()
    slots = Slots(budget, tokenizer=counter, trimming=trimming, ladder=True)
    history = [user(f"{n} ".ljust(size, "h")) for n in range(500)]
    slots.add("history", history, trim_behavior=behavior)
    slots.render()
    counted = sum(text in {message.text for message in history} for text in counter.texts)
    assert counted <= max(budget // size, 4) + 2


@given(ANY)
def test_no_slot_is_larger_than_its_ceiling_but_what_may_not_vanish(scene: Scene) -> None:
    """Where a stepped conversation holds the question itself, it holds the input and the run."""
    assume(scene.has_input or scene.options.get("trimming") != Stepped())
    for slot in scene.window().report.slots:
        if slot.cap is not None and slot.tokens_kept > slot.cap:
            assert may_exceed(scene, slot), slot.name


def may_exceed(scene: Scene, slot: SlotReport) -> bool:
    """Say whether a slot over its ceiling holds something that may not vanish."""
    firm = scene.adds[slot.index][2].get("required") or scene.is_input(slot.index)
    given = scene.given(slot.index)
    tied = any(message.tool_calls or message.tool_call_id for message in given)
    system = any(message.role == "system" for message in given)
    return bool(firm or tied or system or scene.is_run(slot.index))
