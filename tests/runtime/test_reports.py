"""Reports are kept beside the timeline, bounded, and can be planned again at another budget."""

from __future__ import annotations

import asyncio
import json
import pickle
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from muntin import BudgetExceeded, InvalidInput, Slots, ToolCall, Window, assistant, user
from muntin.core.caching.frontier import Frontier
from muntin.core.counting.counter import CharsPerToken
from muntin.core.profile import Profile
from muntin.core.report import in_ranges
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from muntin.runtime.sources import Source
from muntin.testing import MemoryStore, ScriptedModel
from muntin.timeline.items import Draft, Record, SideWrites
from muntin.timeline.store import open_store
from muntin.timeline.store.sql.statements import DROP_NAMES, DROP_REPORTS
from muntin.timeline.stored_plans import read_plan, write_plan
from tests.interfaces import DURABLE
from tests.products import THREE, sample
from tests.runtime.conftest import call, memory, run, texts, wakes


def plans(app: App, session: str) -> list[dict[str, Any]]:
    return [json.loads(record.plan) for record in app.store.reports(session)]


def again(app: App, session: str, record: Record, budget: int | None = None) -> Window:
    """Plan a kept window again."""
    plan = json.loads(record.plan)
    made = read_plan(plan, lambda key: app.store.content(session, "report", key))
    return (made if budget is None else made.at(budget)).window()


def look(n: int) -> str:
    """Look up."""
    return "found " * n


async def talk(app: App, *words: str, **given: Any) -> None:
    chat = app.conversation("c", **given)
    for word in words:
        await chat.send(word)


def test_every_window_leaves_a_report_with_turn_and_step(store_url):
    model = ScriptedModel([call("look", n=3), "one", "two"])

    async def work() -> None:
        async with App(store_url, model=model) as app:
            await talk(app, "first", "second", tools=[look])
            records = app.store.reports("c")
            assert [record.turn for record in records] == [1, 1, 2]
            assert len({(record.turn, record.step) for record in records}) == 3
            for record, window in zip(records, model.windows, strict=True):
                kept = json.loads(record.report)
                assert kept == json.loads(json.dumps(window.report.to_dict()))
            assert app.store.reports("c", first=2) == records[2:]

    run(work())


def test_an_entitys_windows_leave_reports_too():
    app = memory()
    model = ScriptedModel(["ok"])

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=100, sources={"docs": Source("text", max=10, cache="stable")})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, "wake"))
    (record,) = app.store.reports("e/1")
    names = [slot["name"] for slot in json.loads(record.report)["slots"]]
    assert "docs" in names


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_a_report_that_cannot_be_made_is_left_out_and_the_answer_is_not(door, monkeypatch, caplog):
    def broken(*_: object) -> None:
        raise ArithmeticError("no report today")

    monkeypatch.setattr("muntin.timeline.receipts.write_plan", broken)
    model = ScriptedModel(lambda window: "It is done.")
    app = App(MemoryStore(), model=model)

    async def work() -> None:
        async with app:
            await DURABLE[door](app, model, "Do it.", [])

    run(work())
    (session,) = app.store.sessions()
    assert [turn.status for turn in app.store.turns(session.id)] == ["completed"]
    said = [item.message.text for item in app.store.read(session.id) if item.message]
    assert said[-1] == "It is done."
    assert app.store.reports(session.id) == []
    assert "no report today" in caplog.text


def test_the_report_of_a_window_that_could_not_be_sent_is_kept():
    app = memory(model=ScriptedModel([]), budget=50)
    with pytest.raises(BudgetExceeded):
        run(talk(app, "hello", tools=[look]))
    (record,) = app.store.reports("c")
    assert json.loads(record.report)["over_budget"] is True


@pytest.mark.parametrize("door", ["conversation", "instructed", "strategy", "timeline", "entity"])
def test_a_window_that_could_not_be_sent_is_not_the_one_before_the_next(door, lasting_url):
    model = ScriptedModel(lambda window: "ok", name="anthropic/claude-sonnet-4-6")

    def kept(app: App) -> list[str | None]:
        return [app.store.content(each.id, "frontier", "window") for each in app.store.sessions()]

    async def work() -> None:
        async with App(lasting_url, model=model) as app:
            await DURABLE[door](app, model, "first", [look])
            before = kept(app)
        assert any(before)
        async with App(lasting_url, model=model, budget=60) as app:
            with pytest.raises(BudgetExceeded):
                await DURABLE[door](app, model, "second", [look])
            assert kept(app) == before
        async with App(lasting_url, model=model) as app:
            await DURABLE[door](app, model, "third", [look])
            assert kept(app) != before

    run(work())


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_no_more_are_kept_than_asked_for_and_the_newest(keep, store_url):
    async def work() -> None:
        app = App(store_url, model=ScriptedModel(lambda w: "ok"), keep_reports=keep)
        async with app:
            await talk(app, *(f"m{n}" for n in range(6)))
            assert [r.turn for r in app.store.reports("c")] == list(range(7 - keep, 7))
            for record in app.store.reports("c"):  # whose contents are still there
                assert texts(again(app, "c", record))[-1] == f"m{record.turn - 1}"

    run(work())


def test_a_run_of_many_steps_does_not_pile_up_contents(tmp_path):
    """Reports are forgotten step by step; what only they named is forgotten too, in one turn."""
    path = tmp_path / "s.db"
    calls = [ToolCall(f"c{n}", "look", "{}") for n in range(120)]

    def look() -> str:
        """Look."""
        return f"{next(seen)}: " + "found it " * 100

    async def work() -> None:
        seen_by = ScriptedModel([*calls, "Done."], budget=2_000)
        async with App(f"sqlite:///{path}", model=seen_by, keep_reports=30) as app:
            await app.conversation("c", tools=[look], max_steps=200).send("Look it all up.")
            assert len(app.store.reports("c")) == 30

    seen = count()
    run(work())
    with closing(sqlite3.connect(path)) as database:
        kept = database.execute("SELECT COUNT(*) FROM muntin_contents WHERE kind = 'report'")
        named = database.execute("SELECT COUNT(DISTINCT hash) FROM muntin_report_contents")
        assert kept.fetchone()[0] <= named.fetchone()[0] + 20


def test_forgetting_a_report_reads_none_of_the_others(tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        store.append("c", [Draft("message", user("hello"), opens="turn")])
    given = {"sid": 1, "turn": 1, "step": 5}
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        for statement in (DROP_REPORTS, DROP_NAMES):
            plan = database.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall()
            assert "(session=? AND (turn,step)<(?,?))" in plan[0][-1]


def test_contents_no_report_names_are_forgotten_and_those_still_named_are_not(store_url):
    async def work() -> None:
        app = App(store_url, model=ScriptedModel(lambda w: "ok"), keep_reports=1)
        shared = SimpleNamespace(
            on_context_build=lambda ctx: ctx.slots.add("rules", "the rules", role="system")
        )
        async with app:
            chat = app.conversation("c", strategy=shared)
            await chat.send("first")
            (plan,) = plans(app, "c")
            keys = {key for slot in plan["slots"] for key in slot["messages"]}
            for n in range(4):
                await chat.send(f"more {n}")
            (plan,) = plans(app, "c")
            still = {key for slot in plan["slots"] for key in slot["messages"]}
            assert keys & still  # the rules
            for key in still:
                assert app.store.content("c", "report", key) is not None
            gone = keys - still
            assert gone
            assert all(app.store.content("c", "report", key) is None for key in gone)

    run(work())


def test_zero_switches_it_off(store_url):
    async def work() -> None:
        app = App(store_url, model=ScriptedModel(["ok"]), keep_reports=0)
        async with app:
            await talk(app, "hello")
            assert app.store.reports("c") == []

    run(work())


def test_reports_do_not_reach_other_sessions_and_go_with_theirs():
    app = memory(model=ScriptedModel(lambda w: "ok"))
    run(talk(app, "hello"))
    assert app.store.reports("other") == []
    app.store.delete("c")
    assert app.store.reports("c") == []


def test_content_is_kept_once_however_many_windows_show_it():
    app = memory(model=ScriptedModel(lambda w: "ok"))
    run(talk(app, *(f"message {n}" for n in range(10))))
    keys = [key for plan in plans(app, "c") for slot in plan["slots"] for key in slot["messages"]]
    # ten windows of 1, 3, 5 ... 19 messages, of 20 different ones but the last answer
    assert len(keys) == 100
    kept = {app.store.content("c", "report", key) for key in set(keys)}
    assert len(kept) == len(set(keys))
    assert sum("message 0" in (text or "") for text in kept) <= 2


# Planning again.


def declare(slots: Slots) -> None:
    slots.add("system", "You are brief.", priority=9, tier="pinned")
    slots.add("notes", "note " * 60, role="system", priority=2, max_ratio=0.3, trim_behavior="char")
    past = [
        m for n in range(12) for m in (user(f"q{n} " + "x" * 40), assistant(f"a{n}" + "y" * 40))
    ]
    slots.add("history", past, priority=1, max_ratio=0.6, min_tokens=10)
    slots.add("input", "what now?", priority=8)


@pytest.mark.parametrize("budget", [None, 40, 80, 150, 300, 1_000])
def test_planned_again_it_is_what_the_same_slots_give_at_that_budget(budget):
    """The strategy's own slots, rendered directly, against the kept plan."""
    app = App("memory:", model=ScriptedModel(["ok"]), budget=300)
    strategy = SimpleNamespace(on_context_build=lambda ctx: declare(ctx.slots))
    run(talk(app, "what now?", strategy=strategy))
    (record,) = app.store.reports("c")
    planned = again(app, "c", record, budget)
    direct = Slots(budget or 300, previous=Frontier())  # the first window of a conversation
    declare(direct)
    expected = direct.render()
    assert planned.messages == expected.messages
    assert planned.tokens == expected.tokens
    assert planned.report.to_dict() == expected.report.to_dict()


@pytest.mark.parametrize("budget", [1_100, 1_300, 1_600, 4_000])
def test_a_window_of_sources_is_planned_again_at_its_own_budget_and_others(budget):
    app = App("memory:")
    app.session("e/1").append(*(user(f"past {n} " + "x " * 30) for n in range(30)))
    app.session("e/1").insert_context("n", name="Name", content="Ada")
    model = ScriptedModel(["ok"])

    async def handler(ctx: Ctx) -> None:
        sources = {
            "docs": Source("doc " * 50, max=200, cache="stable"),
            "found": Source("found " * 20, max=100),
            "chat": Source(ctx.timeline_messages, max=5_000),
        }
        ctx.use_context(source_budget=6_000, sources=sources)
        ctx.use_agent(model=model, system_prompt="You are Horton.")
        await ctx.agent.run()

    run(wakes(app, handler, "wake"))
    (record,) = app.store.reports("e/1")
    assert again(app, "e/1", record).messages == model.windows[0].messages
    smaller = again(app, "e/1", record, budget)
    assert smaller.tokens <= budget
    shown = texts(smaller)
    assert shown[0] == "You are Horton."
    assert shown[-1] == "wake"
    assert sum("context-entry" in text for text in shown) == 1


def test_a_window_with_markers_is_planned_again_as_it_was():
    app = App("memory:")
    model = ScriptedModel(["ok"])

    async def handler(ctx: Ctx) -> None:
        sources = {"docs": Source("doc " * 900, max=200, cache="stable")}
        ctx.use_context(source_budget=600, sources=sources)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, "wake"))
    (record,) = app.store.reports("e/1")
    assert "load_source_range" in texts(model.windows[0])[0]
    planned = again(app, "e/1", record)
    assert planned.messages == model.windows[0].messages


@pytest.mark.parametrize("tokenizer", ["estimate", CharsPerToken(4), len])
def test_a_plan_can_be_read_whatever_counted_it(tokenizer):
    app = App("memory:", model=ScriptedModel(["ok"]), tokenizer=tokenizer, budget=500)
    run(talk(app, "hello"))
    (record,) = app.store.reports("c")
    assert texts(again(app, "c", record)) == ["hello"]


def test_a_plan_keeps_tools_and_the_models_profile():
    model = ScriptedModel(["ok"], name="anthropic/claude-sonnet-4-5")
    app = App("memory:", model=model, budget=5_000)
    run(talk(app, "hello", tools=[look]))
    (record,) = app.store.reports("c")
    planned = again(app, "c", record)
    assert planned.tools == model.windows[0].tools
    assert planned.tokens == model.windows[0].tokens


def test_attachments_and_tool_traffic_survive_the_plan():
    from muntin import Attachment

    model = ScriptedModel([call("look", n=1), "ok"])
    app = App("memory:", model=model)

    async def work() -> None:
        chat = app.conversation("c", tools=[look])
        await chat.send("see", attachments=[Attachment("a", "a.png", 5, "image")])

    run(work())
    *_, record = app.store.reports("c")
    assert again(app, "c", record).messages == model.windows[-1].messages


def test_a_stepped_window_is_planned_again_as_it_was(tmp_path):
    model = ScriptedModel(
        lambda window: "Here is all I know. " * 15, name="anthropic/claude-sonnet-4-5", budget=4_000
    )

    async def talk() -> list[tuple[str, ...]]:
        async with App(f"sqlite:///{tmp_path / 'a.db'}", model=model) as app:
            for turn in range(30):
                await app.conversation("c").send(f"{turn}: " + "Please tell me everything. " * 12)
            return [
                tuple(
                    message.text
                    for message in read_plan(
                        json.loads(record.plan), lambda key: app.store.content("c", "report", key)
                    )
                    .window()
                    .messages
                )
                for record in app.store.reports("c")
            ]

    again = asyncio.run(talk())
    assert again == [tuple(m.text for m in window.messages) for window in model.windows]


@pytest.mark.parametrize("cached", [True, False])
def test_a_window_that_was_not_to_be_cached_is_not_marked_when_it_is_planned_again(cached):
    profile = Profile.for_model("anthropic/claude-sonnet-4-5")
    slots = Slots(50_000, profile=profile if cached else replace(profile, caching=None))
    slots.add("system", "Never promise a refund. " * 500)
    contents: dict[str, str] = {}
    plan = json.loads(json.dumps(write_plan(slots.plan(), contents)))
    window = slots.render()
    assert bool(window.breakpoints) is cached
    assert read_plan(plan, contents.get).window() == window


def long_talk(app: App, messages: int) -> None:
    """Append a conversation of about 27 tokens a message."""
    words = ["alpha beta gamma delta epsilon zeta", "yes no perhaps maybe surely never"]
    said = [
        (assistant if n % 2 else user)(f"{n}: " + " ".join([words[n % 2]] * 2))
        for n in range(messages)
    ]
    app.session("c").append(*said)


def test_the_report_of_a_window_of_5500_messages_has_at_most_40_kilobytes():
    async def work() -> None:
        model = ScriptedModel(lambda window: "ok", name="openai/gpt-4o")
        async with App("memory:", model=model, budget=150_000) as app:
            long_talk(app, 5_500)
            await talk(app, "one", "two")
            first, second = model.windows
            assert len(first.messages) > 5_000
            assert first.tokens > 100_000
            records = app.store.reports("c")
            for record, window in zip(records, (first, second), strict=True):
                assert len(record.report) + len(record.plan) <= 40_000
                assert again(app, "c", record).messages == window.messages
                frontier = again(app, "c", record).frontier
                assert frontier == replace(window.frontier, anchor=frontier.anchor)
                kept = json.loads(record.report)
                assert sum(slot["tokens_kept"] for slot in kept["slots"]) <= window.tokens
                counts = [d["count"] for slot in kept["slots"] for d in slot["decisions"]]
                assert sum(counts) >= len(window.messages) - 1

    run(work())


def test_a_window_that_grows_puts_little_beside_the_one_before(tmp_path):
    async def work() -> None:
        model = ScriptedModel(lambda window: "ok", name="openai/gpt-4o")
        async with App(f"sqlite:///{tmp_path}/m.db", model=model, budget=150_000) as app:
            long_talk(app, 2_000)
            await talk(app, "one")
            before = app.store.prune()
            sizes = []
            for word in ("two", "three", "four"):
                await talk(app, word)
                statement = "SELECT COUNT(*), SUM(size) FROM muntin_contents"
                sizes.append(app.store.database.query(statement)[0])
            assert before.reports == 0
            assert sizes[-1][0] - sizes[0][0] < 20
            assert sizes[-1][1] - sizes[0][1] < 50_000

    run(work())


@pytest.mark.parametrize("decisions", [90, 200])
def test_a_long_report_tells_of_ranges_what_a_short_one_tells_of_messages(decisions):
    slots = Slots(900, tokenizer=len)
    slots.add("history", [user(f"{n:07}") for n in range(decisions)])
    slots.add("input", "now and then")
    window = slots.render()
    whole = window.report
    kept = in_ranges(whole)
    assert window.kept_report == kept
    assert pickle.loads(pickle.dumps(window)).kept_report == kept
    if decisions < 100:
        assert kept == whole
        return
    history = kept["history"]
    assert len(history.decisions) <= 3
    assert sum(each.count for each in history.decisions) == decisions
    for name in ("tokens_asked", "tokens_kept"):
        asked = [sum(getattr(d, name) for d in r["history"].decisions) for r in (kept, whole)]
        assert asked[0] == asked[1]


def test_reports_are_bounded_over_the_whole_store_by_their_bytes(store_url):
    async def work() -> None:
        model = ScriptedModel(lambda window: "ok")
        async with App(store_url, model=model, report_bytes=20_000) as app:
            for n in range(30):
                await app.conversation(f"c{n}").send(f"{n} " * 500)
            kept = [len(app.store.reports(f"c{n}")) for n in range(30)]
            assert kept[-1] == 1  # the newest is there
            assert kept[:10] == [0] * 10
            assert app.store.prune(most=20_000).reports <= 1
            # What was said is all there.
            assert all(len(app.session(f"c{n}").messages()) == 2 for n in range(30))

    run(work())


def test_reports_are_bounded_over_the_whole_store_by_their_age(store_url):
    async def work() -> None:
        async with App(store_url, model=ScriptedModel(lambda window: "ok")) as app:
            await talk(app, "old")
            (old,) = app.store.reports("c")
            past = replace(old, time=datetime.now(UTC) - timedelta(days=31))
            names = json.loads(old.plan)["slots"][0]["messages"]
            app.store.put("c", SideWrites(past, {}, names, 10))
            for n in range(200):  # now and then it is looked after
                await app.conversation(f"c{n}").send("new")
            assert app.store.reports("c") == []
            assert len(app.store.reports("c199")) == 1

    run(work())


@pytest.mark.parametrize(
    "given", [{"report_bytes": -1}, {"report_age": 30}, {"report_age": timedelta(days=-1)}]
)
def test_a_wrong_bound_is_named(given):
    with pytest.raises(InvalidInput, match=next(iter(given))):
        App("memory:", **given)


def test_what_is_forgotten_is_gone_from_the_file(tmp_path):
    def found(text: str) -> bool:
        return any(text.encode() in file.read_bytes() for file in tmp_path.glob("m.db*"))

    async def work() -> None:
        model = ScriptedModel(lambda window: "ok")
        async with App(f"sqlite:///{tmp_path}/m.db", model=model, report_bytes=None) as app:
            source = "pomegranate " * 2_000
            record = Record(1, 1, datetime.now(UTC), "{}", "{}")
            await talk(app, "first")
            app.store.put("c", SideWrites(record, {"k": source}, ["k"], 10))
            assert found("pomegranate pomegranate")
            app.store.prune(most=0)
            assert not found("pomegranate pomegranate")
            await app.conversation("gone").send("persimmon " * 2_000)
            app.store.delete("gone")
            assert not found("persimmon persimmon")

    run(work())


def test_a_reader_does_not_hold_up_what_is_deleted(tmp_path):
    store: Any = open_store(f"sqlite:///{tmp_path}/m.db")
    for name in ("a", "b"):
        store.append(name, [Draft("message", user("x"), opens="turn")])
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM muntin_items").fetchall()
        began = monotonic()
        store.delete("a")
        assert monotonic() - began < 30
    store.append("b", [Draft("message", user("y"))])
    store.vacuum()
    assert len(store.read("b")) == 2
    store.close()


# The slot in which each door shows what a store has of the conversation.
SHOWING = {"conversation": "timeline", "timeline": "timeline", "entity": "timeline"}
SHOWING |= {"instructed": "timeline", "returned": "timeline", "sources": "talk"}


@pytest.mark.parametrize("door", SHOWING)
def test_a_report_tells_the_size_of_the_whole_timeline_though_little_of_it_was_read(door):
    most = 6_000 if door == "sources" else 1_500  # of which its source has 2,000
    model = ScriptedModel(lambda window: "an answer of some words " * 30, budget=most)
    store = MemoryStore()

    async def ask(text: str) -> None:
        async with App(store) as app:
            await DURABLE[door](app, model, text, ())

    for turns in range(41):
        run(ask("a question " * 30))
        told = model.windows[-1].report[SHOWING[door]]
        is_short = turns < 5
        assert told.asked_is_estimate in ((False,) if is_short else (False, True))
        # A few hidden items, such as entries, make the estimate a little larger.
        assert 2 * turns <= told.messages_asked <= 2 * turns * (1 if is_short else 1.06)
        assert told.tokens_asked == pytest.approx(110 * 2 * turns, rel=0.05)
    assert told.asked_is_estimate
    assert told.messages_kept < 20
    assert sum(each.count for each in told.decisions) < 60


def test_sizes_of_a_kept_report_belong_to_their_messages_though_little_was_read():
    model = ScriptedModel(lambda window: "answer " * (1 + 7 * len(window.messages) % 31))
    app = App("memory:", model=model, budget=400, recall=False)
    run(talk(app, *("question " * (1 + 11 * n % 37) for n in range(60))))
    records = app.store.reports("c")
    for record, window in zip(records, model.windows[-len(records) :], strict=True):
        made = read_plan(
            json.loads(record.plan),
            lambda key: app.store.content("c", "report", key),
            report=json.loads(record.report),
        )
        assert made.window().messages == window.messages
        assert made.tokens == window.tokens


def test_a_list_that_is_whole_needs_no_word_about_what_was_read():
    slots = Slots(60)
    slots.add("history", [user("a question of some words") for _ in range(20)])
    assert "were read" not in str(slots.render().report)
