"""What the user asks is in the window: whole up to 256 tokens, and else with its two ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, Attachment, BudgetExceeded, Input, user
from muntin.testing import ScriptedModel
from muntin.timeline.store.memory import MemoryStore
from tests.interfaces import DURABLE, Interface
from tests.products import THREE, sample
from tests.promises.composing import Add, compose, plain_slots, slot, texts
from tests.runtime.conftest import run
from tests.wired import WIRED


def test_a_system_text_that_is_too_large_takes_nothing_from_the_question() -> None:
    window = compose(60, slot("system", "S" * 68, priority=100), slot("input", "I" * 30))
    assert texts(window) == ["I" * 30]
    assert not window.over_budget
    assert not window.input_cut


def test_a_question_of_at_most_256_tokens_is_never_cut() -> None:
    window = compose(50, slot("system", "S" * 20), slot("input", "I" * 80))
    assert texts(window) == ["S" * 20, "I" * 80]
    assert window.over_budget
    with pytest.raises(BudgetExceeded):
        window.openai()
    window = compose(300, slot("docs", "D" * 100, priority=9), slot("input", "I" * 256, priority=1))
    assert texts(window) == ["I" * 256]


def test_a_long_question_loses_its_middle_and_the_window_says_so() -> None:
    asked = "begin" + "I" * 1_990 + "final"
    window = compose(1_000, slot("system", "S" * 100), slot("input", asked))
    rules, question = texts(window)
    assert rules == "S" * 100
    head, line, tail = question.split("\n")
    assert head.startswith("begin")
    assert tail.endswith("final")
    missing = len(asked) - len(head) - len(tail)
    assert line == f"[{missing:,} characters of this message are left out here]"
    assert window.tokens == 1_000
    assert abs(len(head) - len(tail)) <= 1
    assert window.input_cut
    assert window.report.input_cut
    assert "input cut" in str(window.report)
    assert window.report["input"].status == "trimmed"
    assert window.report.to_dict()["input_cut"] is True


def test_a_question_goes_by_a_priority_of_its_own_and_keeps_256_tokens() -> None:
    adds = [slot("input", "I" * 2_000, priority=1), slot("D", "D" * 500, priority=5)]
    assert [len(text) for text in texts(compose(1_000, *adds))] == [500, 500]
    assert [len(text) for text in texts(compose(756, *adds))] == [256, 500]
    # With less, the document goes, although it is better protected.
    assert [len(text) for text in texts(compose(755, *adds))] == [755]


def test_a_question_is_not_cut_to_less_than_256_tokens() -> None:
    adds = [slot("rules", "R" * 100, required=True), slot("input", "I" * 2_000)]
    assert len(texts(compose(356, *adds))[1]) == 256
    window = compose(355, *adds)
    assert texts(window) == ["R" * 100, "I" * 2_000]  # in vain, so it stays whole
    assert window.over_budget
    assert not window.input_cut


def test_the_files_of_a_question_stay_and_its_text_keeps_256_tokens() -> None:
    files = (Attachment("1", "a.pdf", 10, "document"),)
    window = compose(
        900,
        slot("docs", "D" * 300, priority=5),
        slot("input", Input("I" * 2_000, files), priority=1),
        attachment_tokens={"document": 500},
    )
    assert window.messages[-1].attachments == files
    assert len(window.messages[-1].text) == 900 - 500 - len("File: a.pdf")


def test_the_longest_message_of_a_question_is_cut_first() -> None:
    adds = [slot("input", [user("a" * 100), user("b" * 900), user("c" * 300)])]
    short, cut, other = texts(compose(800, *adds))
    assert (short, other, len(cut)) == ("a" * 100, "c" * 300, 400)


@given(plain_slots(floors=True, question=600), st.integers(1, 900))
def test_the_question_is_there_whatever_stands_beside_it(adds: list[Add], budget: int) -> None:
    window = compose(budget, *adds)
    asked: str = adds[-1][1]
    (question,) = [text for text in texts(window) if "?" in text]
    if len(asked) <= 256 or window.over_budget:
        assert question == asked
    assert len(question) >= min(len(asked), 256)
    assert window.input_cut == (question != asked)
    if window.input_cut and not adds[-1][2]["priority"]:  # then all that goes before it has gone
        for report in window.report.slots[:-1]:
            name, content, options = adds[report.index]
            listed = content if isinstance(content, list) else []
            protected = name == "system" or any(m.role == "system" for m in listed)
            if not (protected or options.get("required") or options.get("min_tokens")):
                assert not report.tokens_kept


EVERY = {**DURABLE, **WIRED}


@pytest.mark.parametrize("interface", [EVERY[name] for name in sample(EVERY, *THREE, "gateway")])
def test_a_question_that_is_too_long_is_cut_in_every_interface(interface: Interface) -> None:
    asked = "First of all: " + "so it goes on and on " * 6_000 + "and what do I do now?"
    model = ScriptedModel(["Well."], name="openai/gpt-4o")
    run(interface(App(MemoryStore(), budget=8_000), model, asked, ()))
    (window,) = model.windows
    assert window.input_cut or interface in WIRED.values()  # what came is all that is known there
    assert window.tokens <= 8_000
    sent: list[Any] = window.openai()["messages"]
    (question,) = [each["content"] for each in sent if "First of all" in str(each["content"])]
    assert question.startswith("First of all")
    assert question.endswith("what do I do now?")
    assert "characters of this message are left out here" in question


@pytest.mark.parametrize("interface", [EVERY[name] for name in sample(EVERY, *THREE, "gateway")])
def test_a_short_question_is_whole_in_every_interface(interface: Interface) -> None:
    model = ScriptedModel(["Well."], name="openai/gpt-4o")
    asked = "What do I do now? " * 40
    run(interface(App(MemoryStore(), budget=8_000), model, asked, ()))
    assert asked in [message.text for message in model.windows[0].messages]
    assert not model.windows[0].input_cut
