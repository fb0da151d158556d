"""Every shape that frameworks send is read, or carried as it is; nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import InvalidInput
from muntin.fitting import Pieces, fit
from muntin.wire.blocks import Ref
from muntin.wire.lists import piece, pieces_of, spans_of
from tests.fitting.shapes import PNG, SHAPES, Shape, ask
from tests.fitting.talks import chat_call, chat_result

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@shapes
def test_every_shape_is_fitted(shape: Shape) -> None:
    fitted = fit(shape.items, 8_000, model="openai/gpt-4o", previous={})
    if shape.whole:
        assert all(a is b for a, b in zip(fitted.kept, shape.items, strict=True))
    assert bool(fitted.unread) == (shape.opaque is not None)
    assert fitted.tokens > 0


@shapes
def test_calls_and_results_are_read_as_such(shape: Shape) -> None:
    messages = [each.message for each in pieces_of(shape.items) if each.message is not None]
    assert sum(bool(each.tool_calls) for each in messages) == shape.calls
    assert sum(each.role == "tool" for each in messages) == shape.results
    if shape.whole and shape.calls:
        made = {call.id for each in messages for call in each.tool_calls}
        assert {each.tool_call_id for each in messages if each.role == "tool"} == made


@shapes
def test_strict_refuses_by_name(shape: Shape) -> None:
    if shape.opaque is None:
        fit(shape.items, 8_000, strict=True, previous={})
        return
    with pytest.raises(InvalidInput, match=f"message {shape.opaque}: .*strict=True"):
        fit(shape.items, 8_000, strict=True, previous={})


@shapes
def test_what_is_read_lazily_has_as_many_pieces_as_it_was_said_to_have(shape: Shape) -> None:
    lazy = pieces_of(shape.items)
    assert len(list(lazy)) == len(lazy)
    for each in lazy:
        assert isinstance(each.ref, Ref)


def test_the_report_names_what_could_not_be_read() -> None:
    fitted = fit(SHAPES["a role nobody knows"].items, 8_000, previous={})
    (told,) = (each for each in fitted.report.slots if each.name == "unread")
    assert told.detail == "message 1: unknown role 'critic'" == fitted.unread[0]


def test_what_cannot_be_read_counts_by_its_size() -> None:
    def size(text: str) -> int:
        items = [ask(), {"role": "critic", "content": text}, ask()]
        return fit(items, 8_000, previous={}).tokens

    assert size("word " * 500) - size("word ") > 400


def test_what_cannot_be_read_leaves_with_what_is_old() -> None:
    items = [{"role": "critic", "content": "word " * 900}]
    items += [ask("word " * 100) for _ in range(20)]
    fitted = fit(items, 1_500, previous={})
    assert items[0] not in fitted.kept
    assert not fitted.unread


def test_half_a_character_is_mended_in_a_copy() -> None:
    items = SHAPES["half a character"].items
    (kept,) = fit(items, 8_000, previous={}).kept
    assert kept == ask("broken ? smile")
    assert items == [ask("broken \ud83d smile")]
    json.dumps(kept, ensure_ascii=False).encode()


def test_half_a_character_in_arguments_is_mended() -> None:
    items = [ask(), chat_call("a", '{"n": "\ud83d"}', "Look."), chat_result("a", "seen")]
    kept = fit(items, 8_000, previous={}).kept
    assert kept[1] == chat_call("a", '{"n": "?"}', "Look.")
    assert kept[2] is items[2]


def test_an_image_counts_by_its_size() -> None:
    small = fit(SHAPES["an image"].items, 8_000, model="openai/gpt-4o", previous={})
    large = fit(
        SHAPES["an image whose URL is a str"].items, 8_000, model="openai/gpt-4o", previous={}
    )
    assert PNG.startswith("iVBOR")
    assert large.tokens - small.tokens > 300


def test_results_without_ids_answer_calls_by_name_else_in_order() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in ("look", "find")]
    items: list[Any] = [
        ask(),
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "name": "find", "content": "found"},
        {"role": "tool", "name": "look", "content": "seen"},
    ]
    _, made, found, seen = (each.message for each in pieces_of(items))
    assert made is not None
    assert found is not None
    assert seen is not None
    look, find = made.tool_calls
    assert (found.tool_call_id, seen.tool_call_id) == (find.id, look.id)


def test_results_of_google_without_ids_answer_their_calls_in_order() -> None:
    call: dict[str, Any] = {"role": "model", "parts": [{"functionCall": {"name": "look"}}]}
    items: list[Any] = [{"role": "user", "parts": [{"text": "Look twice."}]}]
    for text in ("seen", "seen again"):
        told = {"name": "look", "response": {"output": text}}
        items += [call, {"role": "user", "parts": [{"functionResponse": told}]}]
    fitted = fit(items, 8_000, model="google/gemini-3-pro", previous={})
    assert all(a is b for a, b in zip(fitted.kept, items, strict=True))


def test_items_of_responses_beside_a_message_item_of_the_user_are_all_sent() -> None:
    asked = [{"type": "input_text", "text": "Where?"}]
    said = {"type": "output_text", "text": "There.", "annotations": []}
    items: list[Any] = [
        {"type": "message", "role": "user", "content": asked},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "seen"},
        {"type": "message", "id": "m", "role": "assistant", "content": [said]},
        {"type": "message", "role": "user", "content": asked},
    ]
    fitted = fit(items, 8_000, previous={})
    assert all(a is b for a, b in zip(fitted.kept, items, strict=True))
    assert [message.role for message in fitted.window.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


def test_one_item_can_be_read_by_itself() -> None:
    found = piece(chat_call("a", text="x"), "mine")
    assert found.ref == "mine"
    assert found.message is not None
    assert [call.id for call in found.message.tool_calls] == ["a"]
    results = [{"type": "tool_result", "tool_use_id": n, "content": "x"} for n in "ab"]
    assert piece({"role": "user", "content": results}, 7).opaque == "it means 2 messages"


def test_results_stand_alone_and_what_is_said_between_them_is_one() -> None:
    text = {"type": "text", "text": "x"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    spans = spans_of({"content": [text, text, result, result, text]})
    assert spans == [range(2), range(2, 3), range(3, 4), range(4, 5)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
keys = st.sampled_from(
    ["role", "content", "type", "tool_calls", "tool_call_id", "name", "parts", "function_call"]
)
odd = st.dictionaries(
    keys,
    json_values
    | st.sampled_from(["user", "assistant", "tool", "function_call", "message", "reasoning"]),
)


@given(st.lists(odd | json_values, max_size=6))
def test_nothing_that_json_can_hold_raises(items: list[Any]) -> None:
    fitted = fit(items, 100_000, previous={})
    assert isinstance(pieces_of(items), Pieces)
    assert all(
        any(kept is item for item in items) or isinstance(kept, dict | list | str | tuple)
        for kept in fitted.kept
    )


def test_what_is_not_read_is_named_by_its_place_in_the_list():
    """Items of Responses that are one answer count each."""
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}
        for number in range(2)
    ]
    results = [
        {"type": "function_call_output", "call_id": f"c{number}", "output": "seen"}
        for number in range(2)
    ]
    odd = {"type": "item_reference", "id": "msg_1"}
    asks = {"role": "user", "content": "And now?"}
    fitted = fit([asks, *calls, *results, asks, odd, asks], 5_000, model="openai/gpt-5.2")
    (why,) = fitted.unread
    assert why == "message 6: an item of type 'item_reference' cannot be read as a message"
