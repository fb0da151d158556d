"""An argument of the wrong type is an error that names the argument, and nothing is sent."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import (
    App,
    InvalidInput,
    Ladder,
    Recall,
    Results,
    Slots,
    Summary,
    fit,
    flow,
    generator,
    user,
)
from muntin.runtime import Action, Ctx
from muntin.simulator import simulate_trace
from muntin.testing import MemoryStore, ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import memory, run, wakes

WRONG = [5, b"ada", ["ada"], {"a": 1}, object()]


def app() -> App:
    made = App(MemoryStore(), model=ScriptedModel(lambda window: "ok", name=PRICED))

    @made.entity("e")
    async def handler(ctx: Ctx, wake: object) -> None:
        return None

    return made


def refused(work: Any, name: str) -> None:
    """Look whether a call is refused by the name of its argument, and sends nothing."""
    made = app()
    with pytest.raises(InvalidInput) as caught:
        run(_closed(made, work))
    assert name in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert made.store.sessions() == []


async def _closed(made: App, work: Any) -> None:
    try:
        await work(made)
    finally:
        await made.close()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("method", ["send", "ask", "signal", "wake"])
def test_a_sender_is_a_text(method, wrong):
    refused(lambda made: getattr(made, method)("e/1", "hi", sender=wrong), "sender must be a str")


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("method", ["send", "ask"])
def test_a_type_is_a_text(method, wrong):
    refused(lambda made: getattr(made, method)("e/1", "hi", type=wrong), "type must be a str")


@pytest.mark.parametrize("wrong", [*WRONG, None])
def test_the_type_of_a_signal_is_a_text(wrong):
    refused(lambda made: made.signal("e/1", wrong), "type must be a str")


@pytest.mark.parametrize("wrong", [*WRONG, None])
@pytest.mark.parametrize("method", ["send", "ask", "signal", "wake"])
def test_an_entity_is_named_by_a_text(method, wrong):
    refused(lambda made: getattr(made, method)(wrong, "hi"), "an entity is named by a str")


@pytest.mark.parametrize("wrong", [*WRONG, None])
def test_what_a_user_sends_is_a_text(wrong):
    refused(lambda made: made.conversation("c").send(wrong), "text must be a str")
    refused(lambda made: anext(made.conversation("c").stream(wrong)), "text must be a str")


@pytest.mark.parametrize("wrong", [5, "a.png", b"a", None, {"a": 1}])
def test_attachments_are_a_list(wrong):
    refused(lambda made: made.conversation("c").send("hi", attachments=wrong), "attachments must")


@pytest.mark.parametrize("wrong", [5, ["a"], "x"])
def test_settings_are_a_mapping(wrong):
    refused(lambda made: made.conversation("c").send("hi", settings=wrong), "settings must")


@pytest.mark.parametrize("wrong", [5, "app", object()])
def test_the_app_of_a_generator_is_an_app(wrong):
    made = generator(name="g", user="hi", model=ScriptedModel(["ok"], name=PRICED))
    for method in (made.run, made.window):
        with pytest.raises(InvalidInput, match="app must be an App"):
            run(method(app=wrong))


@pytest.mark.parametrize("wrong", [5, b"s", ["s"]])
def test_the_session_of_a_generator_is_a_text(wrong):
    made = generator(name="g", user="hi", model=ScriptedModel(["ok"], name=PRICED))
    with pytest.raises(InvalidInput, match="session"):
        run(made.run(app=app(), session=wrong))


@pytest.mark.parametrize("wrong", [5, ["ask"], None, {"a": 1}])
def test_the_action_of_a_flow_is_a_text(wrong):
    made = flow("f", actions={"ask": Action(generator(user="hi"))})
    with pytest.raises(InvalidInput, match="action"):
        run(made.run(wrong, app=app()))


@pytest.mark.parametrize("wrong", [0, -1, "3", 1.5, True])
def test_max_steps_is_a_number(wrong):
    with pytest.raises(InvalidInput, match="max_steps"):
        app().conversation("c", max_steps=wrong)


@pytest.mark.parametrize("wrong", [5, "x", [1]])
def test_what_a_ctx_is_given_is_checked_by_name(wrong):
    looked: list[Ctx] = []

    def look(ctx: Ctx) -> None:
        with pytest.raises(InvalidInput, match="use_context"):
            ctx.use_context(source_budget=10, sources=wrong)
        with pytest.raises(InvalidInput, match="tools"):
            ctx.use_agent(tools=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="max_steps"):
            ctx.use_agent(max_steps=0 if wrong == 5 else wrong)
        with pytest.raises(InvalidInput, match="system_prompt"):
            ctx.use_agent(system_prompt=5)  # type: ignore[arg-type]

    async def handler(ctx: Ctx) -> None:
        looked.append(ctx)

    run(wakes(memory(model=ScriptedModel([], name=PRICED)), handler, "hi"))
    look(looked[0])


# What a switch stands for when it is True, and something else that it may be.
SWITCHES: dict[str, tuple[object, object]] = {
    "results": (Results(), Results(0.5)),
    "ladder": (Ladder(), Ladder(keep_groups=1)),
    "recovery": (True, True),
    "recall": (Recall(), Recall(tokens=300)),
}


def rules(**given: Any) -> list[object]:
    """Return the rules of an app, a generator and a flow that are given a switch."""
    action = Action(generator(user="hi"))
    return [
        App(MemoryStore(), **given).rules,
        generator(user="hi", **given).options.rules,
        flow("f", actions={"ask": action}, **given).rules,
    ]


@pytest.mark.parametrize("name", SWITCHES)
def test_true_is_the_librarys_own_and_false_and_none_are_off(name):
    own, other = SWITCHES[name]
    assert rules(**{name: True}) == rules(**{name: own})
    assert rules(**{name: False}) == rules(**{name: None}) != rules(**{name: True})
    assert [getattr(each, name) for each in rules(**{name: other})] == [other] * 3
    for made in rules(**{name: "inherit"})[1:]:
        assert getattr(made, name) == "inherit"
    for wrong in (5, "x", [1]):
        with pytest.raises(InvalidInput, match=f"App: {name} must be .*True, False or None, not"):
            rules(**{name: wrong})


def test_a_summary_is_off_or_whose_word_counts_is_the_interfaces_around():
    asked = Summary("x/y")
    for off in (False, None):
        assert App(MemoryStore(), summary=off).rules.summary is False
        assert generator(user="hi", summary=off).options.rules.summary is False
    assert generator(user="hi").options.rules.summary == "inherit"
    assert generator(user="hi", summary=asked).options.rules.summary is asked


@pytest.mark.parametrize("off", [False, None])
def test_the_core_and_fit_take_the_same_switches(off):
    plain = Slots(500)
    assert (plain.results, plain.ladder) == (Results(), None)
    assert Slots(500, ladder=True).ladder == Ladder()
    assert Slots(500, results=off, ladder=off).results is None
    assert Slots(500, trimming=None).trimming == plain.trimming
    messages = [{"role": "user", "content": "hi"}]
    for value in (True, off):
        assert fit(messages, 500, results=value, ladder=value).kept == messages


@pytest.mark.parametrize("wrong", [None, 5, "look", {"name": "look"}])
def test_the_tools_of_a_simulation_are_a_list(wrong):
    with pytest.raises(InvalidInput, match="tools must be a list of schemas, not"):
        simulate_trace([user("hi")], budget=500, model="openai/gpt-5.2", tools=wrong)
