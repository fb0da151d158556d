"""ctx: what each door has, and what it says of things that only other doors have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import muntin
import muntin.testing
from muntin import Budget, ContextEntry, Input, InvalidInput, MuntinError, Turns, assistant, user
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from muntin.runtime.sources import Source
from muntin.testing import ScriptedModel
from muntin.timeline.store.memory import MemoryStore
from tests.runtime.conftest import memory, run, texts, wakes


def in_strategy(look: Any) -> Any:
    """Return what `look(ctx)` gives inside of a strategy."""
    given: list[Any] = []
    model = ScriptedModel(["ok"])
    build = SimpleNamespace(on_context_build=lambda ctx: given.append(look(ctx)))
    run(memory(model=model).conversation("c", strategy=build).send("hi"))
    return given[0]


def in_entity(look: Any, payload: Any = "hi") -> Any:
    """Return what `look(ctx)` gives inside of a handler."""

    async def handler(ctx: Ctx) -> Any:
        return look(ctx)

    return run(wakes(memory(model=ScriptedModel([])), handler, payload))[0]


def refused(name: str) -> Any:
    """Return what looks whether asking for something is refused, and gives the words."""

    def look(ctx: Ctx) -> str:
        with pytest.raises(MuntinError) as caught:
            getattr(ctx, name)
        return str(caught.value)

    return look


@pytest.mark.parametrize(
    ("name", "door"),
    [("wake", "entities"), ("events", "entities"), ("agent", "entities"), ("cap", "generators")],
)
def test_a_strategy_is_told_which_door_has_what_it_has_not(name, door):
    told = in_strategy(refused(name))
    assert f"ctx.{name}" in told
    assert door in told


@pytest.mark.parametrize(
    ("name", "door"), [("slots", "strategies"), ("cap", "generators"), ("agent", "use_agent")]
)
def test_an_entity_is_told_which_door_has_what_it_has_not(name, door):
    told = in_entity(refused(name))
    assert f"ctx.{name}" in told
    assert door in told


@pytest.mark.parametrize("name", ["use_context", "use_agent"])
def test_a_strategy_is_told_who_may_use_context_and_agent(name):
    given: dict[str, Any] = {
        "use_context": {"source_budget": 10, "sources": {"a": Source("x")}},
        "use_agent": {"system_prompt": "x"},
    }

    def look(ctx: Ctx) -> str:
        with pytest.raises(MuntinError) as caught:
            getattr(ctx, name)(**given[name])
        return str(caught.value)

    told = in_strategy(look)
    assert f"ctx.{name}" in told
    assert "entities" in told


@pytest.mark.parametrize("where", [in_strategy, in_entity])
def test_a_name_that_no_door_has_is_an_attribute_error(where):
    def look(ctx: Ctx) -> bool:
        with pytest.raises(AttributeError, match="histroy"):
            ctx.histroy  # noqa: B018
        return hasattr(ctx, "nothing_of_the_kind")

    assert where(look) is False


def test_a_strategys_ctx_has_its_part_of_the_contract():
    def look(ctx: Ctx) -> list[bool]:
        return [
            ctx.input == ctx.message == Input("hi"),
            isinstance(ctx.budget, Budget),
            ctx.session.id == "c",
            ctx.history.recent(5) == [],
            ctx.slots.declared == (),
            len(ctx.tools) == 5,
            texts(ctx.timeline_messages()) == ["hi"],
            ctx.list_context() == [],
        ]

    assert in_strategy(look) == [True] * 8


def test_an_entitys_ctx_has_its_part_of_the_contract():
    def look(ctx: Ctx) -> list[bool]:
        return [
            ctx.input == {"a": 1},
            ctx.wake.payload == {"a": 1},
            [item.payload for item in ctx.events] == [{"a": 1}],
            ctx.session.id == "e/1",
            ctx.history.recent(5) == [],
            len(ctx.tools) == 5,
            texts(ctx.timeline_messages()) == ['{"a":1}'],
        ]

    assert in_entity(look, {"a": 1}) == [True] * 7


def test_the_current_input_of_an_entity_is_its_message():
    message = in_entity(lambda ctx: ctx.message)
    assert message == Input("hi")


def test_an_entity_has_a_budget_or_says_who_has():
    def look(ctx: Ctx) -> Any:
        try:
            return ctx.budget
        except MuntinError as error:
            return error

    found = in_entity(look)
    assert isinstance(found, Budget | MuntinError)


def test_history_is_what_was_before_the_current_turn():
    app = memory(model=ScriptedModel([]))
    app.session("e/1").append(user("before"), assistant("yes"))

    async def handler(ctx: Ctx) -> list[str]:
        return texts(ctx.history.recent(10))

    assert run(wakes(app, handler, "now")) == [["before", "yes"]]


# Entries through ctx.


@pytest.mark.parametrize("where", [in_strategy, in_entity])
def test_entries_are_visible_at_once_in_the_same_turn(where):
    def look(ctx: Ctx) -> list[Any]:
        assert ctx.get_context("n") is None
        made = ctx.insert_context("n", name="Name", content="Ada", attrs={"level": "high"})
        seen: list[Any] = [made == ctx.get_context("n"), ctx.list_context() == [made]]
        again = ctx.insert_context("n", name="Name", content="Bob")
        seen.append([entry.content for entry in ctx.list_context()] == ["Bob"])
        seen.append(again.inserted_at > made.inserted_at > 0)
        ctx.remove_context("n")
        ctx.remove_context("never there")
        seen.append(ctx.list_context() == [])
        return seen

    assert where(look) == [True] * 5


def test_an_entry_is_a_context_entry_with_the_position_it_was_inserted_at():
    def look(ctx: Ctx) -> tuple[ContextEntry, int]:
        made = ctx.insert_context("n", name="Name", content="Ada", attrs={"level": "high"})
        return made, ctx.session.items.all()[-1].position

    made, position = in_entity(look)
    assert made == ContextEntry("n", "Name", "Ada", {"level": "high"}, position)


@pytest.mark.parametrize("attrs", [{"id": "x"}, {"name": "x"}, {"1 bad": "x"}, {"": "x"}])
def test_attributes_of_an_entry_are_checked(attrs):
    def look(ctx: Ctx) -> str:
        with pytest.raises(InvalidInput) as caught:
            ctx.insert_context("n", name="Name", content="Ada", attrs=attrs)
        return str(caught.value)

    assert "'n'" in in_entity(look)


def test_removing_what_is_not_there_writes_nothing():
    def look(ctx: Ctx) -> int:
        ctx.remove_context("nothing")
        return len(ctx.session.items.all())

    assert in_entity(look) == 1


def test_entries_are_durable_before_the_next_step_of_the_model(tmp_path):
    """Another store object reads them while the model is asked."""
    from muntin.timeline.store import open_store

    url = f"sqlite:///{tmp_path / 'm.db'}"
    seen: list[list[str]] = []

    def ask(window: Any) -> str:
        with open_store(url) as other:
            seen.append([item.payload["content"] for item in other.read("e/1", live=True)])
        return "ok"

    async def handler(ctx: Ctx) -> None:
        ctx.insert_context("n", name="Name", content="Ada")
        ctx.use_agent(model=ScriptedModel(ask))
        await ctx.agent.run()

    run(wakes(App(url), handler, "wake"))
    assert seen == [["Ada"]]


# The app.


def test_the_contracts_names_are_where_it_says():
    for name in ("App", "Source", "Wake", "ContextEntry", "prompt_file", "Tool"):
        assert hasattr(muntin, name), name
        assert name in muntin.__all__, name
    for name in ("ScriptedModel", "MemoryStore", "assert_survives"):
        assert hasattr(muntin.testing, name), name


def test_nothing_is_global_two_apps_know_nothing_of_each_other():
    one, two = memory(), memory()
    one.entity("e")(lambda_handler)
    two.entity("e")(lambda_handler)
    run(one.ask("e/1", "hi"))
    assert two.store.sessions() == []


async def lambda_handler(ctx: Ctx, wake: Any) -> None:
    return None


@pytest.mark.parametrize("given", [{"keep_reports": -1}, {"keep_reports": "many"}, {"budget": -5}])
def test_wrong_settings_of_an_app_are_refused(given):
    with pytest.raises(InvalidInput):
        App(MemoryStore(), **given)


def test_the_app_opens_a_file_that_just_appears(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def work() -> None:
        async with App(model=ScriptedModel(["hi"])) as app:
            await app.conversation("c").send("hello")

    run(work())
    assert (tmp_path / "muntin.db").exists()


def test_assets_may_be_named_by_their_directory(tmp_path):
    app = App(MemoryStore(), assets=str(tmp_path / "assets"))
    assert app.assets is not None


def test_a_session_is_read_with_a_window_of_its_own():
    app = memory()
    session = app.session("c", window=Turns(1))
    session.append(user("1"), assistant("a"))
    session.append(user("2"), assistant("b"))
    assert texts(session.messages()) == ["2", "b"]


def test_the_repr_of_ctx_says_where_it_is():
    assert "turn 1" in repr(in_entity(lambda ctx: repr(ctx)))
    assert "'c'" in in_strategy(lambda ctx: repr(ctx))
