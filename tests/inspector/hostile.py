"""A store in which every field that a user or a model can write is an attack."""

from __future__ import annotations

import json
from typing import Any

from muntin import Attachment, Message, Slots, ToolCall
from muntin.core.parts import File, Image, Other, Reasoning, Text
from muntin.core.planning.slot import Group
from muntin.core.window import Window
from muntin.timeline.store import Store
from tests.inspector.conftest import keep

ATTACKS = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "\"'><svg/onload=window.pwned=1>",
    "javascript:window.pwned=1",
    "</pre></article></main><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "{{constructor.constructor('window.pwned=1')()}}${window.pwned=1}",
    "]]><!--<b>\u202e\u0000\u2028 end",
)
SESSION = "<script>window.pwned=1</script>/../../etc/passwd?#&\"'"


class Counting:
    """A tokenizer whose name is an attack too."""

    name = ATTACKS[1]
    message_overhead = 1

    def count(self, text: str) -> int:
        return len(text)


def messages(attack: str, number: int) -> list[Message]:
    call = ToolCall(f"id-{number}-{attack}", attack, json.dumps({"a": attack, attack: 1}))
    parts = (
        Reasoning(attack),
        Text(attack),
        Image(attack),
        File(attack, name=attack, data=attack),
        Other({"type": attack, "x": attack}),
    )
    files = (Attachment(attack, attack, 10, "document", attack),)
    return [
        Message("user", parts, name=attack, attachments=files, extra={"cache": attack}),
        Message("assistant", attack, tool_calls=(call,), extra={"reasoning_content": attack}),
        Message("tool", attack, tool_call_id=call.id, name=attack),
        Message("system", attack, name=attack),
    ]


def slots(budget: int, tokenizer: Any = "chars/4") -> Slots:
    tools = [
        {
            "type": "function",
            "function": {"name": attack, "description": attack, "parameters": {attack: attack}},
        }
        for attack in ATTACKS
    ]
    made = Slots(budget, tokenizer=tokenizer, tools=tools)
    group = Group("<b>group</b>", join=f"\n{ATTACKS[0]}\n")
    for number, attack in enumerate(ATTACKS):
        made.add(attack, messages(attack, number), detail=attack)
        made.add(f"cut {attack}", attack * 30, trim_behavior="char", max_tokens=20, detail=attack)
        made.add(f"joined {attack}", attack * 3, role="system", group=group, priority=number)
        made.exclude(f"excluded {attack}", reason=attack, detail=attack)
    made.add("input", ATTACKS[0])
    return made


def fill(store: Store) -> list[Window]:
    """Keep a whole window, a trimmed one, and one of an unknown tokenizer."""
    return [
        keep(store, SESSION, slots(1_000_000)),
        keep(store, SESSION, slots(3_000)),
        keep(store, SESSION, slots(6_000, Counting())),
    ]
