"""What is required never vanishes: not under a ceiling, not with a partner in another slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Input,
    ToolCall,
    assistant,
    context,
    generate_sync,
    prompt,
    system,
    tool,
    user,
)
from muntin.testing import ScriptedModel
from tests.core.planning.scenes import Scene, scenes
from tests.products import NAMES
from tests.promises.composing import compose, slot, texts

CALL = assistant("call", tool_calls=[ToolCall("1", "look", "{}")])
RESULT = tool("1", "r" * 50)


@pytest.mark.parametrize("ceiling", [{"max_tokens": 20}, {"max_ratio": 0.02}])
def test_a_required_text_over_its_ceiling_stays_and_says_so(ceiling: dict[str, float]) -> None:
    window = compose(1_000, slot("rules", "R" * 60, required=True, **ceiling))
    assert texts(window) == ["R" * 60]
    assert not window.over_budget
    report = window.report["rules"]
    assert (report.status, report.reason, report.cap) == ("kept", "over_cap", 20)


def test_a_required_text_is_cut_to_its_ceiling_by_characters() -> None:
    rules = slot("rules", "R" * 60, required=True, max_tokens=20, trim_behavior="char")
    window = compose(1_000, rules)
    assert texts(window) == ["R" * 20]
    assert window.report["rules"].reason == "over_cap"


def test_a_required_text_with_a_ceiling_of_nothing_stays() -> None:
    rules = slot("rules", "R" * 60, required=True, max_tokens=0, trim_behavior="char")
    window = compose(1_000, rules)
    assert texts(window) == ["R" * 60]
    assert window.report["rules"].reason == "over_cap"


def test_a_required_question_over_its_ceiling_is_cut_like_any_question() -> None:
    """256 tokens of it stay whatever its ceiling, and it shows both ends."""
    question = "Why " + "x" * 400 + " so?"
    for ceiling, size in ((300, 300), (20, 256)):
        options = {"max_tokens": ceiling, "trim_behavior": "char"}
        window = compose(1_000, slot("input", Input(question), required=True, **options))
        assert window.messages == compose(1_000, slot("input", Input(question), **options)).messages
        (message,) = window.messages
        assert ceiling - 60 < len(message.text) <= size
        assert message.text.startswith("Why ")
        assert message.text.endswith(" so?")
    whole = compose(10, slot("input", Input("Why so?"), required=True, max_ratio=0.1))
    assert [message.text for message in whole.messages] == ["Why so?"]


@pytest.mark.parametrize("behavior", ["message", "slot", "char"])
def test_a_required_call_keeps_its_result_in_a_slot_with_a_ceiling(behavior: str) -> None:
    window = compose(
        1_000,
        slot("calls", [CALL], required=True),
        slot("results", [RESULT], max_tokens=10, trim_behavior=behavior),
    )
    assert [message.role for message in window.messages] == ["assistant", "tool"]
    assert window.messages[0] == CALL


def test_a_required_result_keeps_its_call_in_a_slot_with_a_ceiling() -> None:
    window = compose(
        1_000, slot("calls", [CALL], max_tokens=1), slot("results", [RESULT], required=True)
    )
    assert window.messages == (CALL, RESULT)


def test_a_protected_system_text_over_its_ceiling_stays() -> None:
    window = compose(1_000, slot("system", "S" * 60, max_tokens=20))
    assert texts(window) == ["S" * 60]
    assert window.report["system"].reason == "over_cap"
    window = compose(1_000, slot("system", "S" * 60, max_tokens=20, trim_behavior="char"))
    assert texts(window) == ["S" * 20]
    talk = [system("S" * 30), user("u" * 30)]
    assert texts(compose(1_000, slot("talk", talk, max_tokens=20))) == ["S" * 30]


def test_an_input_over_its_ceiling_is_cut_by_its_own_rule() -> None:
    window = compose(1_000, slot("input", Input("I" * 80), max_tokens=20))
    assert texts(window) == ["I" * 80]
    assert window.report["input"].reason == "over_cap"
    window = compose(5_000, slot("input", Input("I" * 2_000), max_tokens=400))
    assert [len(text) for text in texts(window)] == [400]
    assert window.input_cut
    assert window.report["input"].reason == "over_cap"
    window = compose(5_000, slot("input", Input("I" * 2_000), max_tokens=20))
    assert [len(text) for text in texts(window)] == [256]


def test_a_required_result_without_its_call_is_reported_as_orphaned() -> None:
    window = compose(1_000, slot("results", [user(""), RESULT], required=True))
    report = window.report["results"]
    assert (report.status, report.reason) == ("dropped", "orphaned")
    window = compose(1_000, slot("results", [user("kept"), RESULT], required=True))
    assert texts(window) == ["kept"]


def test_a_required_run_takes_the_room_of_its_newest_calls_once() -> None:
    window = compose(
        200,
        slot("doc", "D" * 80, priority=1),
        slot("input", Input("?" * 10)),
        slot("run", [CALL, RESULT], required=True),
    )
    assert texts(window) == ["D" * 80, "?" * 10, "call", "r" * 50]
    window = compose(
        155,
        slot("large", "L" * 80),
        slot("doc", "D" * 80, priority=1),
        slot("input", Input("?" * 10)),
        slot("run", [CALL, RESULT], required=True),
    )
    assert texts(window) == ["D" * 80, "?" * 10, "call", "r" * 50]


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_drops_no_context_that_fits_beside_its_run(name: str) -> None:
    contexts = [context(id=name, priority=60, system=name * 100) for name in "ab"]
    bot = prompt(use=contexts, system="S" * 50, prompt="Q" * 20)
    model = ScriptedModel([ToolCall("1", "look", "{}"), "done"], budget=420, name=name)
    generate_sync(bot, model=model, tools=[look], tokenizer=len)
    window = model.windows[-1]
    assert "b" * 100 in str(window.anthropic()["system"])
    assert window.tokens <= 420


def look() -> str:
    """Look."""
    return "r" * 300


@given(scenes(), st.booleans())
def test_no_required_slot_is_ever_dropped(scene: Scene, narrow: bool) -> None:
    window = scene.window(scene.budget // 2 if narrow else None)
    for report in window.report.slots:
        name, content, options = scene.adds[report.index]
        if options.get("required") or name == "input" or isinstance(content, Input):
            # A result whose call is nowhere in the window cannot be sent, required or not.
            assert report.status != "dropped" or report.reason == "orphaned"
