"""Windows of the promises, composed by hand or at random: one character is one token."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from muntin import Message, Slots, Window
from muntin.core.message import Role
from tests.words import texts as texts

ROLES: tuple[Role, ...] = ("user", "assistant", "system")
Add = tuple[str, Any, dict[str, Any]]


def slot(name: str, content: Any, **options: Any) -> Add:
    return name, content, options


def compose(budget: int, *adds: Add, **options: Any) -> Window:
    slots = Slots(budget, tokenizer=len, **options)
    for name, content, rules in adds:
        slots.add(name, content, **rules)
    return slots.render()


@st.composite
def plain_slots(draw: st.DrawFn, *, floors: bool = False, question: int = 0) -> list[Add]:
    """Slots of every kind, each text of its own letter; with a question of at most that size."""
    adds: list[Add] = []
    letters = iter("abcdefghijklmnopqrstuvwxyz")

    def text() -> str:
        return next(letters) * draw(st.integers(1, 40))

    for number in range(draw(st.integers(1, 4))):
        options: dict[str, Any] = {
            "priority": draw(st.sampled_from((0, 0, 1, 2, 5))),
            "trim_behavior": draw(st.sampled_from(("message", "message", "char", "slot"))),
        }
        if draw(st.integers(0, 3)) == 0:
            options["max_tokens"] = draw(st.integers(10, 60))
        if floors and draw(st.integers(0, 2)) == 0:
            options["min_tokens"] = draw(st.integers(0, 10))
        if draw(st.integers(0, 6)) == 0:
            options["required"] = True
        kind = draw(st.sampled_from(("text", "list", "system")))
        if kind == "list":
            made: list[Message] = [
                Message(draw(st.sampled_from(ROLES)), text())
                for _ in range(draw(st.integers(1, 4)))
            ]
            adds.append((f"list{number}", made, options))
        else:
            adds.append(("system" if kind == "system" else f"text{number}", text(), options))
    if question:
        size = draw(st.integers(1, question))
        adds.append(("input", "?" * size, {"priority": draw(st.sampled_from((0, 0, 3)))}))
    return adds
