"""What is remembered: found again by the object, and never more than so many characters."""

from __future__ import annotations

from muntin import Attachment, Message, ToolCall
from muntin.core.counting import memo
from muntin.core.counting.memo import memoize_by_identity
from muntin.core.message import characters_of


def test_what_was_made_of_an_object_is_found_again_by_the_object():
    made: list[Message] = []

    @memoize_by_identity(characters_of)
    def shout(message: Message) -> str:
        made.append(message)
        return message.text.upper()

    one, like_it = Message("user", "hi"), Message("user", "hi")
    assert [shout(one), shout(one), shout(like_it)] == ["HI"] * 3
    assert len(made) == 2
    assert made[0] is one
    assert made[1] is like_it


def test_what_anybody_could_change_is_not_remembered():
    made: list[Message] = []

    @memoize_by_identity(characters_of)
    def told(message: Message) -> str:
        made.append(message)
        return str(message.extra)

    message = Message("user", "hi", extra={"a": [1]})
    assert message.extra is not None
    told(message)
    message.extra["a"].append(2)
    assert told(message) == "{'a': [1, 2]}"
    assert len(made) == 2


def test_long_messages_are_forgotten(monkeypatch):
    monkeypatch.setattr(memo, "_OBJECT_CHARACTERS", 4_000)
    made: list[Message] = []

    @memoize_by_identity(characters_of)
    def size(message: Message) -> int:
        made.append(message)
        return len(message.text)

    called = (ToolCall("c", "look", '{"text": "' + "x" * 900 + '"}'),)
    messages = [Message("assistant", f"{n}", tool_calls=called) for n in range(20)]
    for message in messages:
        size(message)
    size(messages[-1])
    assert len(made) == 20
    size(messages[0])
    assert len(made) == 21


def test_characters_are_those_of_texts_and_arguments():
    call = ToolCall("c", "look", "{}")
    assert characters_of(Message("assistant", "text", tool_calls=(call,))) == 6
    assert characters_of(Message("user", "x", extra={"a": 1})) is None
    file = Attachment("f1", "plan.pdf", 9, "document")
    assert characters_of(Message("user", "x", attachments=(file,))) is None
