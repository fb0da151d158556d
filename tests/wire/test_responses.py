"""Items of the Responses API: what belongs to one answer, what is the user's."""

from __future__ import annotations

from muntin import File, Image, Message, Text, messages_from
from muntin.core.parts import Other


def test_items_that_follow_each_other_are_one_answer() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    told = {"type": "function_call_output", "call_id": "c", "output": "r"}
    found = messages_from([search, call, told, {**call, "call_id": "d"}])
    assert [each.role for each in found] == ["assistant", "tool", "assistant"]
    assert found[0].content == (Other(search),)


def test_a_message_of_the_user_keeps_the_id_of_its_item() -> None:
    item = {"type": "message", "id": "m", "status": "completed", "role": "user", "content": "hi"}
    assert Message.from_dict(item) == Message("user", "hi", extra={"item_id": "m"})


def test_parts_of_its_own_spelling_are_texts_images_and_files() -> None:
    parts: list[dict[str, str | list[str]]] = [
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "b", "annotations": []},
        {"type": "input_image", "image_url": "u", "detail": "low"},
        {"type": "input_file", "filename": "n", "file_data": "d"},
        {"type": "input_file", "file_url": "u"},
    ]
    message = Message.from_dict({"role": "user", "content": parts})
    assert message.content == (
        Text("a"),
        Text("b"),
        Image("u", detail="low"),
        File(name="n", data="d"),
        Other(parts[4]),
    )
