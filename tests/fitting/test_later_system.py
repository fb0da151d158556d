"""System messages inside of a conversation: they leave with their turn, and what they say stays."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import fit
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request

MODEL = "claude-fable-5-1"
CLEAR: dict[str, Any] = {"clear_at": "next_user_message"}


def system(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": text, **more}


def turns(count: int, words: int = 30, **more: Any) -> list[dict[str, Any]]:
    """Return turns of a question, a system message and an answer, and a question."""
    messages: list[dict[str, Any]] = []
    for number in range(count):
        messages += [
            {"role": "user", "content": f"question {number} " + "word " * words},
            system(f"rule {number}", **more),
            {"role": "assistant", "content": f"answer {number} " + "fact " * words},
        ]
    return [*messages, {"role": "user", "content": "And now?"}]


def body_of(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "system": "Be brief.", "messages": messages, **more}


def check_places(messages: list[Any]) -> None:
    """Check that each system message stands behind a user's, and last or before an answer."""
    roles = [message["role"] for message in messages]
    for place, role in enumerate(roles):
        if role == "system":
            assert place > 0
            assert roles[place - 1] == "user", roles
            assert roles[place + 1 : place + 2] in ([], ["assistant"]), roles


def texts_of(body: Any) -> list[str]:
    blocks = body["system"]
    return [blocks] if isinstance(blocks, str) else [block["text"] for block in blocks]


def test_a_later_system_message_leaves_with_its_turn_and_its_text_goes_to_the_head():
    fitter = Fitter(2_000)
    body = body_of(turns(30))
    outcome = fit_request(fitter, FORMS["anthropic"], body)
    sent = outcome.body["messages"]
    check_places(sent)
    stays = [message["content"] for message in sent if message["role"] == "system"]
    gone = [f"rule {number}" for number in range(30) if f"rule {number}" not in stays]
    assert gone
    assert stays == [f"rule {number}" for number in range(len(gone), 30)]
    assert texts_of(outcome.body) == ["Be brief.", *gone]
    assert outcome.fitted is not None
    assert outcome.fitted.window.tokens <= 2_000
    later = [*body["messages"], {"role": "assistant", "content": "Well."}, *turns(1, words=4)]
    following = fit_request(
        fitter, FORMS["anthropic"], body_of(later), previous=outcome.fitted.frontier
    )
    assert following.body["system"] == outcome.body["system"]  # until the next move
    assert following.body["messages"][: len(sent) - 1] == sent[:-1]


def test_a_cleared_text_leaves_for_good():
    outcome = fit_request(Fitter(1_500), FORMS["anthropic"], body_of(turns(30, **CLEAR)))
    check_places(outcome.body["messages"])
    assert len(outcome.body["messages"]) < 91
    assert texts_of(outcome.body) == ["Be brief."]


def test_a_cleared_text_counts_nothing_once_a_message_of_the_user_follows():
    messages = turns(3)
    messages[1] = system("rule " * 400, **CLEAR)
    without = [*messages[:1], *messages[2:]]
    both = [
        fit_request(Fitter(10_000), FORMS["anthropic"], body_of(each)).fitted
        for each in (messages, without)
    ]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].window.tokens == both[1].window.tokens
    shown = body_of([*turns(1, words=1), system("rule " * 400, **CLEAR)])
    newest = fit_request(Fitter(10_000), FORMS["anthropic"], shown).fitted
    assert newest is not None
    assert newest.window.tokens > 400


def test_its_changes_of_tools_are_made_in_the_tools():
    def change(kind: str, **tool: Any) -> dict[str, Any]:
        return system([{"type": kind, "tool": tool}])

    tools = [
        {"name": "read", "input_schema": {}},
        {"name": "find", "input_schema": {}, "defer_loading": True},
    ]
    made = {"name": "look", "input_schema": {"type": "object"}}
    messages = turns(24)
    messages[1] = change("tool_addition", type="tool_reference", name="find")
    messages[4] = change("tool_addition", type="tool_definition", definition=made)
    messages[7] = change("tool_removal", type="tool_reference", name="read")
    outcome = fit_request(Fitter(1_200), FORMS["anthropic"], body_of(messages, tools=tools))
    assert outcome.body["tools"] == [
        {"name": "read", "input_schema": {}, "defer_loading": True},
        {"name": "find", "input_schema": {}},
        made,
    ]
    whole = fit_request(Fitter(100_000), FORMS["anthropic"], body_of(messages, tools=tools))
    assert whole.body["tools"] is tools


def test_what_the_providers_summary_tells_is_not_said_again():
    block = {"type": "compaction", "content": "Much was said."}
    messages = [*turns(5)[:-1], {"role": "assistant", "content": [block]}, *turns(2)]
    outcome = fit_request(Fitter(5_000), FORMS["anthropic"], body_of(messages))
    assert outcome.body["messages"] == messages[15:]
    assert texts_of(outcome.body) == ["Be brief."]


def test_a_list_returns_what_has_left_apart():
    fitted = fit(turns(30), 1_500, model=f"anthropic/{MODEL}", system="Be brief.", previous={})
    check_places(fitted.kept)
    stays = [message["content"] for message in fitted.kept if message["role"] == "system"]
    assert [message.text for message in fitted.folded] + stays == [f"rule {n}" for n in range(30)]
    older = fit(turns(30), 1_500, model="anthropic/claude-sonnet-4-5", previous={})
    assert older.folded == ()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.booleans(), st.integers(0, 3)), min_size=1, max_size=12
    ),
    st.integers(300, 3_000),
)
def test_no_trim_leaves_a_system_message_where_none_may_stand(shape, budget):
    messages: list[dict[str, Any]] = []
    for number, (words, has_rule, calls) in enumerate(shape):
        messages.append({"role": "user", "content": f"question {number} " + "word " * words})
        for call in range(calls):
            ids = f"toolu_{number}_{call}"
            use = {"type": "tool_use", "id": ids, "name": "read", "input": {}}
            messages.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": ids, "content": "line " * words}
            messages.append({"role": "user", "content": [result]})
        if has_rule:
            messages.append(system(f"rule {number}"))
        messages.append({"role": "assistant", "content": f"answer {number} " + "fact " * words})
    messages.append({"role": "user", "content": "And now?"})
    outcome = fit_request(Fitter(budget), FORMS["anthropic"], body_of(messages))
    check_places(outcome.body["messages"])
    said = " ".join(texts_of(outcome.body)) + str(outcome.body["messages"])
    assert all(f"rule {n}" in said for n, (_, has_rule, _) in enumerate(shape) if has_rule)
