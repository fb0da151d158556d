"""Conversations: recorded first, answered in order, and never stuck behind a turn that failed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from muntin import Attachment, Window, assistant, user
from muntin.errors import BudgetExceeded, InvalidInput, MuntinError, StepLimit
from muntin.providers.assets import DirectoryAssets
from muntin.providers.model import Finished, TextDelta, ToolFinished
from muntin.runtime.app import App
from muntin.runtime.conversation import Conversation
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from tests.runtime.conftest import call, memory, run, said, statuses, texts


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def broken(a: int) -> int:
    """Always fails."""
    raise LookupError(f"nothing at {a}")


def test_a_text_in_an_answer_out_and_both_are_recorded(store_url):
    model = ScriptedModel(["Hi.", "Fine."])

    async def talk() -> None:
        async with App(store_url, model=model) as app:
            chat = app.conversation("c1")
            assert (await chat.send("Hello.")).text == "Hi."
            assert (await chat.send("How are you?")).text == "Fine."
            items = chat.session.items.all()
            assert said(items) == ["Hello.", "Hi.", "How are you?", "Fine."]
            assert [item.position for item in items] == list(range(1, len(items) + 1))
            assert statuses(app, "c1") == ["completed", "completed"]

    run(talk())
    assert texts(model.windows[0]) == ["Hello."]
    assert texts(model.windows[1]) == ["Hello.", "Hi.", "How are you?"]


def test_another_app_on_the_same_store_goes_on_with_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def once(text: str, model: ScriptedModel) -> None:
        async with App(url, model=model) as app:
            await app.conversation("c").send(text)

    run(once("one", ScriptedModel(["1"])))
    model = ScriptedModel(["2"])
    run(once("two", model))
    assert texts(model.windows[0]) == ["one", "1", "two"]


def test_the_app_closes_the_store_it_opened_and_no_other(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def use(store: Any) -> None:
        async with App(store, model=ScriptedModel(["1"])) as app:
            await app.conversation("c").send("one")

    mine = open_store(url)
    run(use(mine))
    assert said(mine.read("c")) == ["one", "1"]
    mine.close()
    run(use(url))


def test_the_message_is_durable_before_the_strategy_is_asked():
    seen: list[list[str]] = []

    def build(ctx: Any) -> None:
        seen.append(said(ctx.session.items.all()))

    chat = memory(model=ScriptedModel(["1"])).conversation(
        "c", strategy=SimpleNamespace(on_context_build=build)
    )
    run(chat.send("one"))
    assert seen == [["one"]]


# Tools.


def test_tools_are_run_and_all_of_it_is_on_the_timeline(store_url):
    model = ScriptedModel([[call("add", a=1, b=2), call("add", "c2", a=3, b=4)], "3 and 7"])

    async def talk() -> None:
        async with App(store_url, model=model) as app:
            chat = app.conversation("c", tools=[add])
            assert (await chat.send("Add.")).text == "3 and 7"
            kinds = [(item.kind, item.role) for item in chat.session.items.all()]
            assert kinds == [
                ("message", "user"),
                ("run", None),
                ("tool_call", "assistant"),
                ("tool_result", "tool"),
                ("tool_result", "tool"),
                ("message", "assistant"),
            ]

    run(talk())
    assert texts(model.windows[1])[-2:] == ["3", "7"]


def test_a_failing_tool_tells_the_model_and_the_turn_goes_on():
    model = ScriptedModel([[call("broken", a=1), call("missing", "c2")], "sorry"])
    app = memory(model=model)
    assert run(app.conversation("c", tools=[broken]).send("Go.")).text == "sorry"
    assert texts(model.windows[1])[-2:] == [
        "Error: tool 'broken' failed: LookupError: nothing at 1",
        "Error: there is no tool 'missing'. Near: broken, load_result.",
    ]
    assert statuses(app, "c") == ["completed"]


def test_the_next_turn_sees_calls_and_results_of_the_one_before():
    model = ScriptedModel([call("add", a=1, b=2), "three", "yes"])
    app = memory(model=model)

    async def talk() -> None:
        chat = app.conversation("c", tools=[add])
        await chat.send("1+2?")
        await chat.send("Sure?")

    run(talk())
    shown = [(m.role, m.text, len(m.tool_calls)) for m in model.windows[-1].messages]
    assert shown == [
        ("user", "1+2?", 0),
        ("assistant", "", 1),
        ("tool", "3", 0),
        ("assistant", "three", 0),
        ("user", "Sure?", 0),
    ]


def test_a_run_without_end_is_stopped_and_recorded_as_failed():
    app = memory(model=ScriptedModel(lambda window: call("add", a=1, b=1)))
    chat = app.conversation("c", tools=[add], max_steps=3)
    with pytest.raises(StepLimit):
        run(chat.send("Go."))
    assert statuses(app, "c") == ["failed"]
    assert chat.session.items.all()[-1].kind == "error"


def test_settings_reach_the_model_and_those_of_a_send_win():
    model = ScriptedModel(["a", "b"])
    app = memory(model=model)

    async def talk() -> None:
        chat = app.conversation("c", settings={"temperature": 0, "top_p": 1})
        await chat.send("1")
        await chat.send("2", settings={"temperature": 1})

    run(talk())
    assert model.settings == [{"temperature": 0, "top_p": 1}, {"temperature": 1, "top_p": 1}]


# Attachments.


def test_attachments_are_kept_shown_and_their_files_sent(tmp_path):
    assets = DirectoryAssets(tmp_path / "assets")
    paper = assets.put(b"%PDF-1.4", "paper.pdf", "application/pdf")
    model = ScriptedModel(["Read.", "Yes."])
    app = memory(model=model, assets=assets)

    async def talk() -> None:
        chat = app.conversation("c")
        await chat.send("Read this.", attachments=[paper])
        await chat.send("Did you?")
        assert chat.session.items.all()[0].message == user("Read this.", attachments=[paper])

    run(talk())
    assert model.windows[0].messages[0].attachments == (paper,)
    assert model.windows[1].messages[0].attachments == (paper,)
    assert list(model.files[0]) == [paper.id]


def test_an_attachment_alone_is_an_input():
    model = ScriptedModel(["A cat."])
    cat = Attachment("a1", "cat.png", 10, "image")
    run(memory(model=model).conversation("c").send("", attachments=[cat]))
    assert [m.attachments for m in model.windows[0].messages] == [(cat,)]


# Many at once.


def test_concurrent_sends_are_answered_in_order_each_with_its_own_reply(store_url):
    order: list[str] = []

    async def echo(window: Window) -> str:
        asked = window.messages[-1].text
        order.append(asked)
        await asyncio.sleep(0.01)
        return f"re: {asked}"

    async def talk() -> None:
        async with App(store_url, model=ScriptedModel(echo)) as app:
            chats = [app.conversation("c") for _ in range(6)]
            replies = await asyncio.gather(*(c.send(f"m{n}") for n, c in enumerate(chats)))
            assert [r.text for r in replies] == [f"re: m{n}" for n in range(6)]
            assert statuses(app, "c") == ["completed"] * 6
            recorded = said(app.store.read("c"))
            asked = [text for text in recorded if not text.startswith("re: ")]
            assert order == asked

    run(talk())


def test_a_turn_sees_all_turns_before_it_and_nothing_of_those_behind():
    model = ScriptedModel(lambda window: f"re: {window.messages[-1].text}")

    async def talk() -> None:
        app = memory(model=model)
        chat = app.conversation("c")
        await asyncio.gather(*(chat.send(f"m{n}") for n in range(4)))

    run(talk())
    for number, window in enumerate(model.windows):
        before = [text for n in range(number) for text in (f"m{n}", f"re: m{n}")]
        assert sorted(texts(window)[:-1]) == sorted(before)
        assert texts(window)[-1] == f"m{number}"


def test_history_of_a_turn_that_waited_has_the_answers_before_it():
    seen: list[str] = []

    def build(ctx: Any) -> None:
        seen.append(ctx.history.recent_text(10))

    async def talk() -> None:
        app = memory(model=ScriptedModel(["one", "two"]))
        chat = app.conversation("c", strategy=SimpleNamespace(on_context_build=build))
        await asyncio.gather(chat.send("1"), chat.send("2"))

    run(talk())
    assert seen == ["", "User: 1\nAssistant: one"]


def test_turns_that_wait_do_not_all_ask_the_store_all_the_time():
    app = memory(model=ScriptedModel(lambda window: "ok"))
    taken: list[int | None] = []
    take = app.store.take

    def counted(*args: Any, number: int | None = None) -> Any:
        taken.append(number)
        return take(*args, number=number)

    app.store.take = counted  # type: ignore[assignment, method-assign]

    async def talk() -> None:
        await asyncio.gather(*(app.conversation("c").send(f"m{n}") for n in range(60)))

    run(talk())
    assert statuses(app, "c") == ["completed"] * 60
    assert len(taken) < 600  # if each asked for every turn before it: 1,830
    assert app.queue.waiting == 0


def test_a_turn_that_is_cancelled_while_it_waits_does_not_hold_up_those_behind_it():
    async def talk() -> None:
        begun, end = asyncio.Event(), asyncio.Event()

        async def slowly(window: Window) -> str:
            begun.set()
            await end.wait()
            return "ok"

        app = memory(model=ScriptedModel(slowly))
        first, second, third = (
            asyncio.create_task(app.conversation("c").send(f"m{n}")) for n in range(3)
        )
        await begun.wait()
        while len(app.store.turns("c")) < 3 or not app.queue.waiting:
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        end.set()
        assert (await first).text == (await third).text == "ok"
        assert statuses(app, "c") == ["completed", "failed", "completed"]

    run(talk())


def test_a_failed_turn_does_not_hold_up_those_that_wait():
    model = ScriptedModel(lambda w: OSError("down") if w.messages[-1].text == "m0" else "fine")

    async def talk() -> None:
        app = memory(model=model)
        chat = app.conversation("c")
        given = await asyncio.gather(
            *(chat.send(f"m{n}") for n in range(3)), return_exceptions=True
        )
        assert isinstance(given[0], OSError)
        assert [getattr(each, "text", None) for each in given[1:]] == ["fine", "fine"]
        assert statuses(app, "c") == ["failed", "completed", "completed"]

    run(talk())


def test_two_conversations_do_not_wait_for_each_other():
    async def never(window: Window) -> str:
        if window.messages[-1].text == "wait":
            await asyncio.sleep(60)
        return "ok"

    async def talk() -> None:
        app = memory(model=ScriptedModel(never))
        slow = asyncio.create_task(app.conversation("a").send("wait"))
        await asyncio.sleep(0.05)
        assert (await app.conversation("b").send("go")).text == "ok"
        slow.cancel()

    run(talk(), within=10)


# Cancelling.


async def hangs(window: Window) -> str:
    if window.messages[-1].text == "hang":
        await asyncio.sleep(60)
    return "ok"


async def next_turn_works(app: App, chat: Conversation, asked: list[str]) -> None:
    assert (await chat.send("again")).text == "ok"
    assert isinstance(app.model, ScriptedModel)
    shown = [m.text for m in app.model.windows[-1].messages if m.role == "user"]
    assert [text for text in shown if not text.startswith("<")] == [*asked, "again"]
    assert statuses(app, "c")[-1] == "completed"


def test_a_send_that_is_cancelled_leaves_the_message_and_a_failed_turn(store_url):
    async def talk() -> None:
        async with App(store_url, model=ScriptedModel(hangs)) as app:
            chat = app.conversation("c")
            task = asyncio.create_task(chat.send("hang"))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert statuses(app, "c") == ["failed"]
            assert said(app.store.read("c")) == ["hang"]
            await next_turn_works(app, chat, ["hang"])

    run(talk())


def test_a_send_that_is_cancelled_while_it_waits_holds_up_nobody():
    async def talk() -> None:
        app = memory(model=ScriptedModel(hangs))
        chat = app.conversation("c")
        first = asyncio.create_task(chat.send("hang"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(chat.send("waiting"))
        await asyncio.sleep(0.1)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await next_turn_works(app, chat, ["hang", "waiting"])
        assert statuses(app, "c") == ["failed", "failed", "completed"]

    run(talk(), within=10)


def test_wait_for_ends_a_send_in_time_and_the_conversation_goes_on():
    async def talk() -> None:
        app = memory(model=ScriptedModel(hangs))
        chat = app.conversation("c")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(chat.send("hang"), 0.1)
        await next_turn_works(app, chat, ["hang"])

    run(talk(), within=10)


def test_cancelling_while_a_tool_runs_keeps_the_call_and_the_finished_results():
    started = asyncio.Event()

    async def slow() -> str:
        """Take long."""
        started.set()
        await asyncio.sleep(60)
        return "never"

    async def quick() -> str:
        """Be quick."""
        return "quick result"

    async def talk() -> None:
        model = ScriptedModel([[call("quick"), call("slow", "c2")], "ok"])
        app = memory(model=model)
        chat = app.conversation("c", tools=[slow, quick])
        task = asyncio.create_task(chat.send("Go."))
        await started.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert said(app.store.read("c")) == ["Go.", "", "quick result"]
        await chat.send("again")
        shown = texts(model.windows[-1])
        assert shown[0] == "Go."
        assert "quick result" in shown
        assert shown[-1] == "again"

    run(talk(), within=10)


def test_a_stream_that_is_left_half_way_fails_its_turn(store_url):
    async def talk() -> None:
        async with App(store_url, model=ScriptedModel(["one two three four", "ok"])) as app:
            chat = app.conversation("c")
            async with aclosing(chat.stream("Count.")) as events:
                async for event in events:
                    assert event == TextDelta("one ")
                    break
            assert statuses(app, "c") == ["failed"]
            await next_turn_works(app, chat, ["Count."])

    run(talk())


def test_a_stream_whose_reader_fails_fails_its_turn():
    async def talk() -> None:
        app = memory(model=ScriptedModel(["one two three four", "ok"]))
        chat = app.conversation("c")

        async def read() -> None:
            async with aclosing(chat.stream("Count.")) as events:
                async for _ in events:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await read()
        await next_turn_works(app, chat, ["Count."])

    run(talk())


def test_a_stream_yields_pieces_tools_and_ends_with_finished():
    app = memory(model=ScriptedModel([call("add", a=1, b=2), "It is 3."]))

    async def talk() -> list[Any]:
        return [event async for event in app.conversation("c", tools=[add]).stream("1+2?")]

    events = run(talk())
    assert [e.result.text for e in events if isinstance(e, ToolFinished)] == ["3"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It is 3."
    assert isinstance(events[-1], Finished)
    assert events[-1].reply.text == "It is 3."
    assert statuses(app, "c") == ["completed"]


def test_a_turn_is_completed_when_its_last_event_is_there():
    """Who stops reading at Finished has had all of it."""

    async def talk() -> None:
        app = memory(model=ScriptedModel(["ok"]))
        async with aclosing(app.conversation("c").stream("Go.")) as events:
            async for event in events:
                if isinstance(event, Finished):
                    break
        assert statuses(app, "c") == ["completed"]

    run(talk())


# Errors.


def test_an_error_of_the_model_is_recorded_and_passes(store_url):
    model = ScriptedModel([OSError("no network"), "ok"])

    async def talk() -> None:
        async with App(store_url, model=model) as app:
            chat = app.conversation("c")
            with pytest.raises(OSError, match="no network"):
                await chat.send("Hello.")
            items = app.store.read("c")
            assert [item.kind for item in items] == ["message", "run", "error"]
            assert items[-1].payload == "OSError: no network"
            assert statuses(app, "c") == ["failed"]
            await next_turn_works(app, chat, ["Hello."])

    run(talk())


def test_a_stream_that_breaks_off_is_an_error_and_the_turn_failed():
    app = memory(model=ScriptedModel([[TextDelta("half"), OSError("cut")]]))

    async def talk() -> None:
        async for _ in app.conversation("c").stream("Go."):
            pass

    with pytest.raises(OSError, match="cut"):
        run(talk())
    assert statuses(app, "c") == ["failed"]


def test_an_input_larger_than_the_window_is_cut_and_the_record_is_whole():
    model = ScriptedModel(["long!"])
    app = memory(model=model, budget=300)
    run(app.conversation("c").send("x" * 500))
    (window,) = model.windows
    assert window.input_cut
    assert len(texts(window)[0]) == 300
    assert said(app.store.read("c")) == ["x" * 500, "long!"]


def test_tools_larger_than_the_window_are_a_clear_error_before_the_model_is_asked():
    model = ScriptedModel([])
    app = memory(model=model, budget=100)
    with pytest.raises(BudgetExceeded, match=r"only 100 are available; .*the tools"):
        run(app.conversation("c", tools=[add]).send("hello"))
    assert model.windows == []
    assert statuses(app, "c") == ["failed"]
    assert said(app.store.read("c")) == ["hello"]


def test_a_conversation_needs_a_model():
    with pytest.raises(InvalidInput, match=r"give model=, or App\(\.\.\., model=\)"):
        memory().conversation("c")


# Without a strategy.


def test_the_default_window_keeps_the_newest_and_never_overflows():
    model = ScriptedModel(lambda window: "a" * 50)

    async def talk() -> None:
        app = memory(model=model, budget=400)
        chat = app.conversation("c")
        for number in range(20):
            await chat.send(f"{number:03}" + "q" * 47)

    run(talk())
    begins = []
    for number, window in enumerate(model.windows):
        assert window.tokens <= 400
        assert not window.over_budget
        shown = texts(window)
        assert shown[-1].startswith(f"{number:03}")
        whole = [t for n in range(number) for t in (f"{n:03}" + "q" * 47, "a" * 50)]
        past = shown[:-1]
        assert past == whole[len(whole) - len(past) :]
        assert 4 <= len(past) <= 6 or past == whole  # it moves to about half of its room
        begins.append(len(whole) - len(past))
    assert sorted(begins) == begins
    assert 3 <= len(set(begins)) <= len(begins) // 2 + 1


def test_the_default_shows_entries_at_their_position_and_only_live_ones():
    model = ScriptedModel(["a", "b"])

    async def talk() -> None:
        app = memory(model=model)
        session = app.session("c")
        session.append(user("1"), assistant("2"))
        session.insert_context("n", name="Name", content="old")
        session.insert_context("n", name="Name", content="Ada <b>")
        session.append(user("3"), assistant("4"))
        await app.conversation("c").send("5")

    run(talk())
    entry = '<context-entry id="n" name="Name">Ada &lt;b&gt;</context-entry>'
    assert texts(model.windows[0]) == ["1", "2", entry, "3", "4", "5"]


def test_a_scripted_models_own_budget_counts_else_the_apps_else_128_000():
    def tokens(app: App, **given: Any) -> int:
        return app.conversation("c", **given).budget.remaining_input_tokens

    assert tokens(memory(model=ScriptedModel([]))) == 128_000
    assert tokens(memory(model=ScriptedModel([], budget=500))) == 500
    assert tokens(memory(model=ScriptedModel([]), budget=700)) == 700
    assert tokens(memory(model=ScriptedModel([]), budget=700), budget=900) == 900


def test_one_session_is_one_timeline_whatever_door_it_is_used_through():
    async def talk() -> None:
        app = memory(model=ScriptedModel(lambda window: f"{len(window.messages)} messages"))

        @app.entity("e")
        async def handler(ctx: Any, wake: Any) -> None:
            ctx.use_agent()
            await ctx.agent.run()

        app.session("e/1").append(user("by hand"), assistant("noted"))
        assert (await app.conversation("e/1").send("by conversation")).text == "3 messages"
        reply = await app.ask("e/1", "by entity")
        assert reply is not None
        assert reply.text == "5 messages"

    run(talk())


def test_a_conversation_waits_for_a_wake_of_the_same_session_and_the_other_way_round():
    at_once: list[int] = []
    working = 0

    async def count(window: Window) -> str:
        nonlocal working
        working += 1
        at_once.append(working)
        await asyncio.sleep(0.02)
        working -= 1
        return "ok"

    async def talk() -> None:
        app = memory(model=ScriptedModel(count))

        @app.entity("e")
        async def handler(ctx: Any, wake: Any) -> None:
            ctx.use_agent()
            await ctx.agent.run()

        chat = app.conversation("e/1")
        await asyncio.gather(
            app.ask("e/1", "a"), chat.send("b"), app.ask("e/1", "c"), chat.send("d")
        )

    run(talk())
    assert max(at_once) == 1


@pytest.mark.parametrize("id", ["", "x" * 501, "a\x00b", 3])
def test_an_id_no_store_can_keep_is_refused(id):
    with pytest.raises(MuntinError, match="session id"):
        memory(model=ScriptedModel([])).conversation(id)
