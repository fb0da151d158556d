"""Entities: what wakes them, one handler at a time, in order, and how a wake ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import InvalidInput, MuntinError, assistant, user
from muntin.errors import TurnLost
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store.memory import MemoryStore
from tests.runtime.conftest import Elsewhere, call, memory, run, said, statuses, texts


async def answers(ctx: Ctx, wake: Wake) -> None:
    ctx.use_agent()
    await ctx.agent.run()


def noting(app: App, kind: str = "e", **given: Any) -> list[Wake]:
    """Register a handler that notes its wakes."""
    noted: list[Wake] = []

    @app.entity(kind)
    async def handler(ctx: Ctx, wake: Wake) -> None:
        noted.append(wake)

    return noted


# Registering and naming.


def test_an_unknown_type_is_an_error_that_names_the_known_ones():
    app = memory()
    noting(app, "horton")
    for work in (app.send, app.ask):
        with pytest.raises(InvalidInput, match=r"'dumbo'.*known: horton"):
            run(work("dumbo/1", "hi"))
    with pytest.raises(InvalidInput, match=r"'dumbo'.*known: horton"):
        run(app.signal("dumbo/1", "ping"))
    assert app.store.sessions() == []


def test_a_type_is_registered_once():
    app = memory()
    noting(app, "horton")
    with pytest.raises(InvalidInput, match="'horton' have a handler already"):
        noting(app, "horton")


def test_registering_returns_the_handler_as_it_was():
    app = memory()
    assert app.entity("e")(answers) is answers


@pytest.mark.parametrize("kind", ["", "a/b", 3, None])
def test_a_type_is_a_word_without_a_stroke(kind):
    with pytest.raises(InvalidInput, match="a type of entities"):
        memory().entity(kind)


def test_a_handler_that_is_not_async_is_refused():
    with pytest.raises(InvalidInput, match="'e' must be an async function"):
        memory().entity("e")(lambda ctx, wake: None)  # type: ignore[arg-type,return-value]


def test_a_handler_that_does_not_take_a_ctx_and_a_wake_is_refused():
    async def alone(ctx):
        pass

    async def too_many(ctx, wake, more):
        pass

    for wrong in (alone, too_many):
        with pytest.raises(InvalidInput, match=r"'e' must take \(ctx, wake\)"):
            memory().entity("e")(wrong)  # type: ignore[arg-type]

    async def any_number(*args):
        pass

    assert memory().entity("e")(any_number) is any_number


@pytest.mark.parametrize("name", ["e", "e/", "/1", "", "/"])
def test_an_entity_is_named_by_type_and_name(name):
    app = memory()
    noting(app)
    with pytest.raises(InvalidInput, match="'order/7'"):
        run(app.send(name, "hi"))


def test_what_follows_the_first_stroke_is_the_name():
    app = memory()
    noted = noting(app)

    async def work() -> None:
        await app.ask("e/a/b", "hi")

    run(work())
    assert [wake.payload for wake in noted] == ["hi"]
    assert [info.id for info in app.store.sessions()] == ["e/a/b"]


# What is sent.


def test_send_returns_when_the_message_is_durable(store_url):
    async def work() -> None:
        async with App(store_url, model=ScriptedModel([])) as app:
            noting(app)
            item = await app.send("e/1", "hello", type="greeting", sender="ada")
            assert (item.position, item.turn, item.kind) == (1, 1, "message")
            assert item.meta == {"type": "greeting", "sender": "ada"}
            (stored,) = app.store.read("e/1")
            assert stored.message == user("hello")
            assert stored.meta == {"type": "greeting", "sender": "ada"}

    run(work())


@pytest.mark.parametrize("payload", ["text", {"a": [1, None]}, [1, 2], 7, True])
def test_the_payload_arrives_as_it_was_sent(payload):
    app = memory()
    noted = noting(app)
    run(app.ask("e/1", payload, sender="ada"))
    (wake,) = noted
    assert wake == Wake("inbox", "ada", payload, 1, 1, 1)


def test_a_payload_that_is_no_json_is_refused_and_nothing_is_sent():
    app = memory()
    noting(app)
    with pytest.raises(InvalidInput, match="payload"):
        run(app.send("e/1", object()))
    assert app.store.read("e/1") == []


def test_a_text_is_shown_as_it_is_and_another_payload_as_compact_json():
    model = ScriptedModel(lambda window: "ok")
    app = memory(model=model)
    app.entity("e")(answers)

    async def work() -> None:
        await app.ask("e/1", "a\ntext")
        await app.ask("e/1", {"b": 1, "a": [2]})
        await app.close()

    run(work())
    assert texts(model.windows[1]) == ["a\ntext", "ok", '{"a":[2],"b":1}']


def test_a_signal_wakes_as_type_signal_and_is_shown_as_an_escaped_tag():
    model = ScriptedModel(["ok"])
    app = memory(model=model)
    wakes: list[Wake] = []

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        wakes.append(wake)
        await answers(ctx, wake)

    async def work() -> None:
        await app.signal("e/1", "door", {"text": "<open>\n&"}, sender="bell")
        await app.close()

    run(work())
    (wake,) = wakes
    assert (wake.type, wake.source, wake.count) == ("signal", "bell", 1)
    assert wake.payload == {"type": "door", "payload": {"text": "<open>\n&"}}
    (shown,) = texts(model.windows[0])
    assert shown.startswith('<signal type="door">')
    assert "\n" not in shown
    assert "<open>" not in shown


def test_a_scheduler_wakes_as_type_timer_and_what_it_says_is_shown():
    model = ScriptedModel(["ok"])
    app = memory(model=model)
    wakes: list[Wake] = []

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        wakes.append(wake)
        await answers(ctx, wake)

    async def work() -> None:
        await app.wake("e/1", "It is nine.", sender="cron")
        await app.close()

    run(work())
    assert [(each.type, each.source, each.payload) for each in wakes] == [
        ("timer", "cron", "It is nine.")
    ]
    assert texts(model.windows[0]) == ["It is nine."]
    with pytest.raises(InvalidInput, match="no entities of type 'f'"):
        run(app.wake("f/1", "It is nine."))


# Coalescing and order.


def held(app: App) -> tuple[asyncio.Event, list[list[Any]]]:
    """Register a handler that waits to be let go; return how, and the payloads of each wake."""
    go = asyncio.Event()
    handled: list[list[Any]] = []

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        handled.append([item.content for item in ctx.events])
        assert wake.count == len(ctx.events)
        assert wake.payload == handled[-1][-1]
        assert wake.from_position == ctx.events[0].position
        assert wake.to_position == ctx.events[-1].position
        await go.wait()

    return go, handled


def test_what_arrives_meanwhile_is_the_next_wake(store_url):
    async def work() -> None:
        async with App(store_url, model=ScriptedModel([])) as app:
            go, handled = held(app)
            await app.send("e/1", "a")
            while not handled:
                await asyncio.sleep(0.01)
            for text in ("b", "c", "d"):
                await app.send("e/1", text)
            go.set()
            await app.ask("e/1", "e")
            assert handled[0] == ["a"]
            assert [text for wake in handled[1:] for text in wake] == ["b", "c", "d", "e"]
            assert handled[1][:3] == ["b", "c", "d"]
            assert set(statuses(app, "e/1")) == {"completed"}

    run(work())


def test_messages_and_signals_coalesce_and_the_newest_says_why():
    async def work() -> list[Wake]:
        app = memory()
        noted = noting(app)
        await app.send("e/1", "a", sender="ada")
        await app.signal("e/1", "tick")
        await app.close()
        return noted

    (wake,) = run(work())
    assert wake == Wake("signal", None, {"type": "tick"}, 1, 2, 2)


def test_never_two_handlers_of_one_entity_and_other_entities_do_not_wait():
    working: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0

    async def work() -> None:
        nonlocal together
        app = memory()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            nonlocal together
            id = ctx.session.id
            working[id] = working.get(id, 0) + 1
            most[id] = max(most.get(id, 0), working[id])
            together = max(together, sum(working.values()))
            await asyncio.sleep(0.01)
            working[id] -= 1

        await asyncio.gather(*(app.ask(f"e/{entity}", n) for entity in range(4) for n in range(5)))
        await app.close()

    run(work())
    assert most == {f"e/{n}": 1 for n in range(4)}
    assert together == 4


def test_two_apps_on_one_store_never_handle_one_entity_at_once(lasting_url):
    working = 0
    handled: list[Any] = []

    async def work() -> None:
        nonlocal working
        async with App(lasting_url) as one, App(lasting_url) as two:

            async def handler(ctx: Ctx, wake: Wake) -> None:
                nonlocal working
                working += 1
                assert working == 1
                await asyncio.sleep(0.02)
                handled.extend(item.content for item in ctx.events)
                working -= 1

            for app in (one, two):
                app.entity("e")(handler)
            sends = [((one, two)[n % 2]).ask("e/1", n) for n in range(12)]
            await asyncio.gather(*sends)
            recorded = [item.content for item in one.store.read("e/1")]
            assert handled == recorded
            assert sorted(handled) == list(range(12))

    run(work())


# How a wake ends.


def test_ask_returns_the_reply_of_the_wake():
    async def work() -> None:
        app = memory(model=ScriptedModel(["the answer"]))
        app.entity("e")(answers)
        reply = await app.ask("e/1", "question")
        assert reply is not None
        assert reply.text == "the answer"
        assert reply.usage.input > 0

    run(work())


def test_ask_of_a_handler_that_runs_no_agent_gives_none():
    app = memory()
    noting(app)
    assert run(app.ask("e/1", "hi")) is None


def test_everyone_who_asked_gets_the_reply_of_the_wake_that_handled_it():
    async def work() -> None:
        app = memory(model=ScriptedModel(lambda w: f"{len(w.messages)}"))
        app.entity("e")(answers)
        replies = await asyncio.gather(*(app.ask("e/1", n) for n in range(3)))
        assert {reply.text for reply in replies if reply} <= {"1", "2", "3", "4", "5"}
        assert len(replies) == 3

    run(work())


def test_ask_raises_what_the_handler_raised_and_the_turn_is_failed(store_url):
    async def work() -> None:
        async with App(store_url) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                if wake.payload == "bad":
                    raise ZeroDivisionError("by zero")

            with pytest.raises(ZeroDivisionError, match="by zero"):
                await app.ask("e/1", "bad")
            assert statuses(app, "e/1") == ["failed"]
            assert [(i.kind, i.content) for i in app.store.read("e/1")] == [
                ("message", "bad"),
                ("error", "ZeroDivisionError: by zero"),
            ]
            await app.ask("e/1", "good")
            assert statuses(app, "e/1") == ["failed", "completed"]

    run(work())


def test_a_failed_wake_is_not_run_again_and_the_next_one_sees_its_message():
    model = ScriptedModel([OSError("down"), "ok"])
    app = memory(model=model)
    app.entity("e")(answers)

    async def work() -> None:
        with pytest.raises(OSError, match="down"):
            await app.ask("e/1", "first")
        await asyncio.sleep(1.2)  # longer than a sweep
        assert len(model.windows) == 1
        await app.ask("e/1", "second")
        await app.close()

    run(work())
    shown = texts(model.windows[1])
    assert (shown[0], shown[-1]) == ("first", "second")
    assert sum("OSError: down" in text for text in shown) == 1


def test_ask_across_apps_is_answered_by_whoever_handles_it(tmp_path):
    """One app sends but is kept from handling; the other one handles."""
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def work() -> None:
        one = App(url, model=ScriptedModel([]), engine=Elsewhere())
        two = App(url, model=ScriptedModel(["from two"]))
        async with one, two:
            for app in (one, two):
                app.entity("e")(answers)
            reply = await one.ask("e/1", "who?")
            assert reply is not None
            assert reply.text == "from two"

    run(work())


def test_a_message_whose_sender_never_handles_is_handled_by_the_sweep_of_another(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def work() -> None:
        one = App(url, engine=Elsewhere())
        noting(one)
        await one.send("e/1", "left behind")
        await one.close()
        two = App(url)
        noted = noting(two)
        async with two:
            for _ in range(300):
                if noted:
                    break
                await asyncio.sleep(0.01)
        assert [wake.payload for wake in noted] == ["left behind"]

    run(work())


def test_the_sweep_finds_an_entity_behind_any_number_of_others_that_wait():
    """Sessions of types that nobody here handles must not hide the others."""
    store = MemoryStore()

    async def work() -> None:
        other = App(store, engine=Elsewhere())
        noting(other, "a")
        noting(other, "z")
        for n in range(150):
            await other.send(f"a/{n:03}", n)
        await other.send("z/1", "here")
        mine = App(store)
        noted = noting(mine, "z")
        async with mine:
            for _ in range(300):
                if noted:
                    break
                await asyncio.sleep(0.01)
        assert [wake.payload for wake in noted] == ["here"]

    run(work())


def test_an_app_that_is_entered_again_looks_after_entities_again():
    store = MemoryStore()
    mine, other = App(store), App(store, engine=Elsewhere())
    noted = noting(mine)
    noting(other)

    async def work(payload: str) -> None:
        async with mine:
            await other.send("e/1", payload)
            for _ in range(300):
                if noted and noted[-1].payload == payload:
                    break
                await asyncio.sleep(0.01)

    run(work("first"))
    run(work("second"))
    assert [wake.payload for wake in noted] == ["first", "second"]


def test_an_app_that_was_never_closed_looks_after_entities_in_the_next_event_loop_too():
    store = MemoryStore()
    mine, other = App(store), App(store, engine=Elsewhere())
    noted = noting(mine)
    noting(other)

    async def work() -> None:
        await other.send("e/1", "left behind")
        await mine.send("e/2", "own")
        for _ in range(300):
            if "left behind" in [wake.payload for wake in noted]:
                break
            await asyncio.sleep(0.01)

    run(mine.send("e/2", "in the loop before"))
    run(work())
    assert "left behind" in [wake.payload for wake in noted]


def test_close_lets_what_waits_come_to_an_end():
    async def work() -> None:
        app = memory()
        go, handled = held(app)
        await app.send("e/1", "a")
        await asyncio.sleep(0)
        await app.send("e/1", "b")
        go.set()
        await app.close()
        assert [text for wake in handled for text in wake] == ["a", "b"]

    run(work())


def test_a_wake_cut_off_with_its_loop_is_resumed_by_the_same_process(tmp_path):
    """As in a notebook: the loop ends, the process does not."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    begun: list[Any] = []

    async def first() -> None:
        app = App(url)

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            begun.append(wake.payload)
            await asyncio.sleep(60)

        await app.send("e/1", "job")
        while not begun:
            await asyncio.sleep(0.01)

    async def second() -> None:
        async with App(url) as app:
            noted = noting(app)
            await app.ask("e/1", "next")
            assert [wake.payload for wake in noted] == ["job", "next"]

    run(first())
    run(second(), within=10)
    assert begun == ["job"]


# What a wake sees.


def test_a_second_wake_sees_texts_calls_and_results_of_the_first():
    def look(where: str) -> str:
        """Look."""
        return f"nothing {where}"

    model = ScriptedModel([call("look", where="there"), "Nothing.", "Still nothing."])
    app = memory(model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent(system_prompt="Look around.", tools=[look])
        await ctx.agent.run()

    async def work() -> None:
        await app.ask("e/1", "Look there.")
        await app.ask("e/1", "And now?")
        await app.close()

    run(work())
    shown = [(m.role, m.text, [c.name for c in m.tool_calls]) for m in model.windows[-1].messages]
    assert shown == [
        ("system", "Look around.", []),
        ("user", "Look there.", []),
        ("assistant", "", ["look"]),
        ("tool", "nothing there", []),
        ("assistant", "Nothing.", []),
        ("user", "And now?", []),
    ]


def test_the_default_assembly_keeps_the_newest_and_never_overflows():
    model = ScriptedModel(lambda window: "a" * 50, budget=500)
    app = memory(model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent(system_prompt="S" * 100)
        await ctx.agent.run()

    async def work() -> None:
        for number in range(12):
            await app.ask("e/1", f"{number:03}" + "q" * 47)
        await app.close()

    run(work())
    begins = []
    for number, window in enumerate(model.windows):
        assert window.tokens <= 500
        shown = texts(window)
        assert shown[0] == "S" * 100
        assert shown[-1][:3] == f"{number:03}"
        whole = [t for n in range(number) for t in (f"{n:03}" + "q" * 47, "a" * 50)]
        past = shown[1:-1]
        assert past == whole[len(whole) - len(past) :]
        assert 4 <= len(past) <= 6 or past == whole  # it moves to about half of its room
        begins.append(len(whole) - len(past))
    assert sorted(begins) == begins
    assert 3 <= len(set(begins)) <= len(begins) // 2 + 1


def test_two_runs_in_one_wake_are_both_recorded_and_the_second_sees_the_first():
    model = ScriptedModel(["one", "two", "three"])
    app = memory(model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        await ctx.agent.run()
        await ctx.agent.run()

    async def work() -> None:
        reply = await app.ask("e/1", "go")
        assert reply is not None
        assert reply.text == "two"

    run(work())
    assert texts(model.windows[1]) == ["go", "one"]
    assert said(app.store.read("e/1")) == ["go", "one", "two"]


def test_messages_that_arrive_during_a_run_come_after_it_in_the_next_wake():
    async def work() -> None:
        app = memory()
        model = ScriptedModel(["", ""])

        async def answer(window: Any) -> str:
            if len(model.windows) == 1:
                await app.send("e/1", "meanwhile")
            return "done"

        model._replies = answer
        app.model = model
        app.entity("e")(answers)
        await app.ask("e/1", "first")
        await app.close()
        assert texts(model.windows[1]) == ["first", "done", "meanwhile"]

    run(work())


def test_an_agent_needs_to_be_declared_before_it_is_run():
    app = memory()

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        await ctx.agent.run()

    with pytest.raises(MuntinError, match=r"ctx\.use_agent"):
        run(app.ask("e/1", "go"))


def test_use_agent_again_replaces_the_agent():
    one, two = ScriptedModel(["one"]), ScriptedModel(["two"])
    app = memory()

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent(model=one)
        ctx.use_agent(model=two, system_prompt="Second.", settings={"temperature": 0})
        await ctx.agent.run()

    run(app.ask("e/1", "go"))
    assert one.windows == []
    assert texts(two.windows[0]) == ["Second.", "go"]
    assert two.settings == [{"temperature": 0}]


def test_an_agents_stream_is_recorded_like_a_run():
    app = memory(model=ScriptedModel(["one two"]))
    events: list[Any] = []

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        events.extend([event async for event in ctx.agent.stream()])

    async def work() -> None:
        reply = await app.ask("e/1", "go")
        assert reply is not None
        assert reply.text == "one two"

    run(work())
    assert said(app.store.read("e/1")) == ["go", "one two"]
    assert events[-1].reply.message == assistant("one two")


def test_entries_appear_at_their_position_where_nothing_is_declared():
    model = ScriptedModel(["noted", "yes"])
    app = memory(model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        await ctx.agent.run()
        if wake.payload == "one":
            ctx.insert_context("n", name="Name", content="Ada")

    async def work() -> None:
        await app.ask("e/1", "one")
        await app.ask("e/1", "two")
        await app.close()

    run(work())
    entry = '<context-entry id="n" name="Name">Ada</context-entry>'
    assert texts(model.windows[1]) == ["one", "noted", entry, "two"]


# Losing a turn.


def test_who_lost_the_turn_to_another_writes_nothing_more(store_url):
    """Its lease ran out, and another machine has taken it over."""
    from datetime import timedelta

    from muntin.timeline import owner as owners

    async def work() -> None:
        async with App(store_url, model=ScriptedModel(lambda window: "too late")) as app:
            lost: list[BaseException] = []

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                owners.done(ctx.turn.owner)
                owner = owners.new_owner()
                taken = app.store.take("e/1", owner, timedelta(seconds=60), resumable=True)
                assert taken is not None
                try:
                    await answers(ctx, wake)
                except MuntinError as error:
                    lost.append(error)
                    raise

            await app.send("e/1", "hello")
            while not lost:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert isinstance(lost[0], TurnLost)
            assert said(app.store.read("e/1")) == ["hello"]
            assert [item.kind for item in app.store.read("e/1")] == ["message"]
            assert statuses(app, "e/1") == ["open"]  # the other one's, who still works on it

    run(work())
