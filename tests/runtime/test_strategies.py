"""Strategies: what they may return, what becomes of the input, and what happens when they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from muntin import Message, Window, assistant, system, user
from muntin.errors import InvalidType, MuntinError, StrategyError
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, memory, run, said, statuses, texts


def strategy(build: Callable[[Ctx], Any], **hooks: Any) -> SimpleNamespace:
    return SimpleNamespace(on_context_build=build, **hooks)


def window_for(build: Callable[[Ctx], Any], text: str = "the question") -> Window:
    """Return what the model is shown in the third turn, after two of the same text."""
    model = ScriptedModel(["one", "two", "three"])
    app = memory(model=model)

    async def talk() -> None:
        past = app.conversation("c")
        await past.send(text)
        await past.send(text)
        await app.conversation("c", strategy=strategy(build)).send(text)

    run(talk())
    return model.windows[-1]


def once(window: Window, text: str = "the question") -> bool:
    """Say whether the input stands exactly once; what history repeats of it has a position."""
    return [m.role for m in window.messages if m.text == text and m.at is None] == ["user"]


def declare(ctx: Ctx) -> None:
    ctx.slots.add("system", "Be brief.")
    ctx.slots.add("history", ctx.history.recent(10))
    ctx.slots.add("input", ctx.input)


def the_seeds_own(ctx: Ctx) -> Any:
    declare(ctx)
    return ctx.slots.render()


def a_list(ctx: Ctx) -> Any:
    declare(ctx)
    return list(ctx.slots.render().messages)


def a_dict(ctx: Ctx) -> Any:
    declare(ctx)
    return {"messages": ctx.slots.render().messages}


def nothing(ctx: Ctx) -> None:
    declare(ctx)


def plain_dicts(ctx: Ctx) -> Any:
    past = [message.to_dict() for message in ctx.history.recent(10)]
    return [{"role": "system", "content": "Be brief."}, *past, {"role": "user", "content": "Q?"}]


async def an_async_one(ctx: Ctx) -> Any:
    await asyncio.sleep(0)
    return the_seeds_own(ctx)


@pytest.mark.parametrize("build", [the_seeds_own, a_list, a_dict, nothing, an_async_one])
def test_every_return_form_gives_the_same_window(build):
    shown = [(m.role, m.text) for m in window_for(build).messages]
    assert shown == [
        ("system", "Be brief."),
        ("user", "the question"),
        ("assistant", "one"),
        ("user", "the question"),
        ("assistant", "two"),
        ("user", "the question"),
    ]


def forgot_it_in_slots(ctx: Ctx) -> None:
    ctx.slots.add("system", "Be brief.")
    ctx.slots.add("history", ctx.history.recent(10))


def forgot_it_in_a_window(ctx: Ctx) -> Any:
    forgot_it_in_slots(ctx)
    return ctx.slots.render()


def forgot_it_in_a_list(ctx: Ctx) -> Any:
    return [system("Be brief."), *ctx.history.recent(10)]


def forgot_everything(ctx: Ctx) -> Any:
    return []


def declared_nothing(ctx: Ctx) -> None:
    return None


@pytest.mark.parametrize(
    "build",
    [
        forgot_it_in_slots,
        forgot_it_in_a_window,
        forgot_it_in_a_list,
        forgot_everything,
        declared_nothing,
    ],
)
def test_an_input_that_was_left_out_is_the_last_message(build):
    window = window_for(build)
    assert window.messages[-1] == user("the question")
    assert once(window)


def twice_as_slots(ctx: Ctx) -> None:
    ctx.slots.add("question", ctx.input)
    ctx.slots.add("input", ctx.input)


def twice_in_a_window(ctx: Ctx) -> Any:
    twice_as_slots(ctx)
    return ctx.slots.render()


def copied_by_hand(ctx: Ctx) -> None:
    ctx.slots.add("history", ctx.history.recent(10))
    ctx.slots.add("input", {"role": "user", "content": ctx.input.text})


def copied_twice_by_hand(ctx: Ctx) -> None:
    ctx.slots.add("input", user(ctx.input.text))
    ctx.slots.add("input", [user(ctx.input.text)])


def copied_to_the_end_of_a_list(ctx: Ctx) -> Any:
    return [*ctx.history.recent(10), {"role": "user", "content": ctx.input.text}]


@pytest.mark.parametrize(
    "build",
    [
        twice_as_slots,
        twice_in_a_window,
        copied_by_hand,
        copied_twice_by_hand,
        copied_to_the_end_of_a_list,
    ],
)
def test_an_input_that_was_given_twice_is_shown_once(build):
    assert once(window_for(build))


def test_a_copy_in_another_slot_is_another_message():
    def build(ctx: Ctx) -> None:
        ctx.slots.add("question", user(ctx.input.text))

    shown = [m.text for m in window_for(build).messages]
    assert shown == ["the question", "the question"]


def the_timeline_in_a_slot(ctx: Ctx) -> None:
    ctx.slots.add("timeline", ctx.timeline_messages())


def the_timeline_and_the_input(ctx: Ctx) -> None:
    ctx.slots.add("timeline", ctx.timeline_messages())
    ctx.slots.add("input", ctx.input)


def the_timeline_in_a_list(ctx: Ctx) -> Any:
    return list(ctx.timeline_messages())


@pytest.mark.parametrize(
    "build", [the_timeline_in_a_slot, the_timeline_and_the_input, the_timeline_in_a_list]
)
def test_the_timeline_which_has_the_input_already_does_not_double_it(build):
    shown = texts(window_for(build))
    assert shown == ["the question", "one", "the question", "two", "the question"]


def test_what_history_says_in_the_same_words_is_not_the_input():
    window = window_for(the_seeds_own)
    assert texts(window).count("the question") == 3


def test_the_input_stays_where_the_strategy_put_it():
    def build(ctx: Ctx) -> Any:
        return [user(ctx.input.text), system("Answer in French.")]

    assert texts(window_for(build)) == ["the question", "Answer in French."]


def test_attachments_of_the_input_are_shown_whatever_the_strategy_returned():
    from muntin import Attachment

    paper = Attachment("a1", "paper.pdf", 1_000, "document")
    for build in (the_seeds_own, nothing, declared_nothing, lambda ctx: [user(ctx.input.text)]):
        model = ScriptedModel(["read"])
        chat = memory(model=model).conversation("c", strategy=strategy(build))
        run(chat.send("Read this.", attachments=[paper]))
        assert [m.attachments for m in model.windows[0].messages if m.role == "user"] == [(paper,)]
        assert chat.session.items.all()[0].message == user("Read this.", attachments=[paper])


@pytest.mark.parametrize("given", [42, "text", {"content": "?"}, {"messages": None}, [1], object()])
def test_a_wrong_return_value_is_an_error_and_the_message_stays(given):
    app = memory(model=ScriptedModel([]))
    chat = app.conversation("c", strategy=strategy(lambda ctx: given))
    with pytest.raises(MuntinError):
        run(chat.send("hello"))
    assert said(chat.session.items.all()) == ["hello"]
    assert statuses(app, "c") == ["failed"]


def test_any_module_with_on_context_build_is_a_strategy():
    module = ModuleType("mine")
    module.on_context_build = the_seeds_own  # type: ignore[attr-defined]
    chat = memory(model=ScriptedModel(["hi"])).conversation("c", strategy=module)
    assert run(chat.send("hello")).text == "hi"


@pytest.mark.parametrize("wrong", [object(), "text", SimpleNamespace(on_context_build=3)])
def test_anything_else_is_refused_at_once(wrong):
    with pytest.raises(InvalidType, match="on_context_build"):
        memory(model=ScriptedModel([])).conversation("c", strategy=wrong)


class OfObjects:
    def on_context_build(self, ctx: Ctx) -> Any:
        return the_seeds_own(ctx)


class OfTheClass:
    @staticmethod
    def on_context_build(ctx: Ctx) -> Any:
        return the_seeds_own(ctx)


def test_a_class_in_the_place_of_its_object_is_refused_and_told_what_to_write():
    with pytest.raises(InvalidType, match=r"not its class: pass strategy=OfObjects\(\)"):
        memory(model=ScriptedModel([])).conversation("c", strategy=OfObjects)
    for fine in (OfObjects(), OfTheClass, OfTheClass()):
        chat = memory(model=ScriptedModel(["hi"])).conversation("c", strategy=fine)
        assert run(chat.send("hello")).text == "hi"


# Failing.


def raises(ctx: Ctx, *_: Any) -> None:
    raise KeyError("profile")


async def raises_async(ctx: Ctx, *_: Any) -> None:
    raise KeyError("profile")


def sleeps(ctx: Ctx, *_: Any) -> None:
    time.sleep(30)


async def sleeps_async(ctx: Ctx, *_: Any) -> None:
    await asyncio.sleep(30)


def of_its_own(ctx: Ctx, *_: Any) -> None:
    raise TimeoutError("the database")


FAILURES = {
    raises: "raised KeyError: 'profile'",
    raises_async: "raised KeyError: 'profile'",
    sleeps: "took longer than 0.2 s",
    sleeps_async: "took longer than 0.2 s",
    of_its_own: "raised TimeoutError: the database",
}


@pytest.mark.parametrize("hook", ["on_init", "on_context_build"])
@pytest.mark.parametrize("failing", list(FAILURES))
def test_a_hook_that_fails_or_is_slow_leaves_the_message_and_a_clear_error(hook, failing):
    model = ScriptedModel(["fine"])
    app = memory(model=model)
    broken = strategy(nothing, on_init=lambda ctx: None)
    setattr(broken, hook, failing)

    async def talk() -> None:
        timeout = 0.2 if "0.2 s" in FAILURES[failing] else 60
        chat = app.conversation("c", strategy=broken, timeout=timeout)
        started = time.monotonic()
        with pytest.raises(StrategyError) as caught:
            await chat.send("hello")
        assert time.monotonic() - started < 20
        assert str(caught.value) == f"the strategy's {hook} {FAILURES[failing]}"
        assert statuses(app, "c") == ["failed"]
        assert said(chat.session.items.all()) == ["hello"]
        # The next turn works, and shows what was not answered.
        assert (await app.conversation("c").send("again")).text == "fine"

    run(talk())
    assert next(m.text for m in model.windows[0].messages if m.role == "user") == "hello"
    assert statuses(app, "c") == ["failed", "completed"]


def test_thirty_seconds_are_the_default():
    from muntin.calls import TIMEOUT

    assert TIMEOUT == 30


def test_hooks_are_called_in_order_and_init_once():
    called: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda ctx, *more: called.append(name)

    def build(ctx: Ctx) -> None:
        called.append("build")

    hooks = {name: note(name) for name in ("on_init", "on_turn_end", "on_error")}
    app = memory(model=ScriptedModel(["a", "b"]))

    async def talk() -> None:
        chat = app.conversation("c", strategy=strategy(build, **hooks))
        await chat.send("1")
        await chat.send("2")

    run(talk())
    assert called == ["on_init", "build", "on_turn_end", "build", "on_turn_end"]


def test_on_turn_end_sees_the_answer_that_was_recorded():
    seen: list[list[str]] = []
    end = lambda ctx: seen.append(said(ctx.session.items.all()))  # noqa: E731
    app = memory(model=ScriptedModel(["the answer"]))
    run(app.conversation("c", strategy=strategy(nothing, on_turn_end=end)).send("hello"))
    assert seen == [["hello", "the answer"]]


def test_on_error_is_told_what_went_wrong_and_the_error_still_passes():
    told: list[BaseException] = []
    app = memory(model=ScriptedModel([OSError("no network")]))
    watching = strategy(nothing, on_error=lambda ctx, error: told.append(error))
    with pytest.raises(OSError, match="no network"):
        run(app.conversation("c", strategy=watching).send("hello"))
    assert [type(each) for each in told] == [OSError]


def test_on_error_hears_of_the_strategys_own_failure():
    told: list[str] = []
    watching = strategy(raises, on_error=lambda ctx, error: told.append(str(error)))
    with pytest.raises(StrategyError):
        run(memory(model=ScriptedModel([])).conversation("c", strategy=watching).send("hello"))
    assert told == ["the strategy's on_context_build raised KeyError: 'profile'"]


@pytest.mark.parametrize("failing", [raises, sleeps_async])
def test_an_on_error_that_fails_itself_does_not_hide_the_error(failing):
    app = memory(model=ScriptedModel([OSError("no network")]))
    chat = app.conversation("c", strategy=strategy(nothing, on_error=failing), timeout=0.2)
    with pytest.raises(OSError, match="no network"):
        run(chat.send("hello"))
    assert statuses(app, "c") == ["failed"]


@pytest.mark.parametrize("failing", [raises, sleeps_async])
def test_an_on_turn_end_that_fails_marks_the_turn_and_the_next_one_works(failing):
    app = memory(model=ScriptedModel(["a", "b"]))

    async def talk() -> None:
        chat = app.conversation("c", strategy=strategy(nothing, on_turn_end=failing), timeout=0.2)
        with pytest.raises(StrategyError, match="on_turn_end"):
            await chat.send("1")
        await app.conversation("c").send("2")

    run(talk())
    assert statuses(app, "c") == ["failed", "completed"]


# What a strategy sees.


def test_the_strategy_sees_input_message_budget_and_the_past():
    seen: dict[str, Any] = {}

    def build(ctx: Ctx) -> None:
        seen.update(input=ctx.input, message=ctx.message, tokens=ctx.budget.remaining_input_tokens)
        seen.update(past=ctx.history.recent_text(10), last=ctx.history.last_user())
        seen.update(session=ctx.session.id)

    model = ScriptedModel(["one", "two"])

    async def talk() -> None:
        app = memory(model=model, budget=5_000)
        await app.conversation("c").send("first")
        await app.conversation("c", strategy=strategy(build)).send("second")

    run(talk())
    assert seen["input"].text == seen["message"].text == "second"
    assert seen["tokens"] == 5_000
    assert seen["past"] == "User: first\nAssistant: one"
    assert isinstance(seen["last"], Message)
    assert seen["last"].text == "first"
    assert seen["session"] == "c"


def test_history_has_the_tool_traffic_of_earlier_turns_and_none_of_this_one():
    seen: list[list[str]] = []
    replies = [call("add", a=1, b=2), "three", call("add", a=2, b=2), "four"]

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def build(ctx: Ctx) -> None:
        seen.append([m.role for m in ctx.history.recent(10)])

    async def talk() -> None:
        app = memory(model=ScriptedModel(replies))
        chat = app.conversation("c", strategy=strategy(build), tools=[add])
        await chat.send("1+2?")
        await chat.send("2+2?")

    run(talk())
    assert seen == [[], ["user", "assistant", "tool", "assistant"]]


def test_entries_written_by_a_strategy_are_there_at_once_and_in_the_next_turn():
    seen: list[Any] = []

    def build(ctx: Ctx) -> None:
        seen.append([entry.content for entry in ctx.list_context()])
        ctx.insert_context("n", name="Name", content=f"Ada {len(seen)}")
        seen.extend(entry.content for entry in ctx.list_context())

    async def talk() -> None:
        app = memory(model=ScriptedModel(["a", "b"]))
        chat = app.conversation("c", strategy=strategy(build))
        await chat.send("1")
        await chat.send("2")

    run(talk())
    assert seen == [[], "Ada 1", ["Ada 1"], "Ada 3"]


# The rules of slots hold in every step of the turn.


def lookup(n: int) -> str:
    """Look something up."""
    return "x" * n


@pytest.mark.parametrize("returning", [True, False])
def test_a_large_result_of_a_tool_never_costs_the_system_prompt(returning):
    """All priorities 0: the system message is protected, in the second step too."""

    def build(ctx: Ctx) -> Any:
        ctx.slots.add("system", "Be brief.")
        ctx.slots.add("history", ctx.history.recent(10))
        ctx.slots.add("input", ctx.input)
        return ctx.slots.render() if returning else None

    model = ScriptedModel(["y" * 300, call("lookup", n=600), "done"])
    app = memory(model=model, budget=1_000)

    async def talk() -> None:
        await app.conversation("c").send("z" * 100)
        await app.conversation("c", strategy=strategy(build), tools=[lookup]).send("look")

    run(talk())
    last = model.windows[-1]
    assert last.messages[0] == system("Be brief.")
    assert [m.role for m in last.messages][-3:] == ["user", "assistant", "tool"]
    assert "y" * 300 not in texts(last)


@pytest.mark.parametrize("returning", [True, False])
def test_priorities_of_the_strategy_hold_in_every_step(returning):
    def build(ctx: Ctx) -> Any:
        ctx.slots.add("rules", "R" * 200, role="system", priority=100)
        ctx.slots.add("notes", "N" * 200, role="system", priority=1)
        ctx.slots.add("input", ctx.input, priority=50)
        return ctx.slots.render() if returning else None

    model = ScriptedModel([call("lookup", n=300), "done"])
    app = memory(model=model, budget=850)
    rules: dict[str, Any] = {"recovery": False, "results": None}
    chat = app.conversation("c", strategy=strategy(build), tools=[lookup], **rules)
    run(chat.send("look"))
    assert texts(model.windows[0]) == ["R" * 200, "N" * 200, "look"]
    assert texts(model.windows[1])[0] == "R" * 200
    assert "N" * 200 not in texts(model.windows[1])
    assert model.windows[1].messages[-1].text == "x" * 300


def test_the_kept_report_has_the_slots_of_the_strategy():
    model = ScriptedModel(["hi"])
    app = memory(model=model)
    run(app.conversation("c", strategy=strategy(the_seeds_own)).send("hello"))
    assert [slot.name for slot in model.windows[0].report.slots] == ["system", "history", "input"]


def test_strategies_may_be_changed_between_turns_of_one_session():
    model = ScriptedModel(["a", "b"])

    async def talk() -> None:
        app = memory(model=model)
        await app.conversation("c", strategy=strategy(nothing)).send("1")
        await app.conversation("c", strategy=strategy(forgot_everything)).send("2")

    run(talk())
    assert texts(model.windows[1]) == ["2"]


def test_a_dict_of_messages_as_plain_dicts_is_fine():
    window = window_for(plain_dicts, "Q?")
    assert texts(window)[0] == "Be brief."
    assert once(window, "Q?")
    assert window.messages[-1] == user("Q?")


def test_assistant_text_equal_to_the_input_is_not_the_input():
    def build(ctx: Ctx) -> Any:
        return [assistant(ctx.input.text)]

    shown = [(m.role, m.text) for m in window_for(build).messages]
    assert ("user", "the question") in shown
