"""Forms of results and groups: worked cases first, then what holds for any text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import InvalidInput, Ladder, Message, Results, Slots, ToolCall, assistant, tool, user
from muntin.core.counting.counter import Counter
from muntin.core.cutting import is_boundary
from muntin.core.parts import Attachment, Image
from muntin.core.planning.compact import CUT, SHORT, STUB, Compactor
from muntin.errors import InvalidType
from tests.core.planning.scenes import TOKENIZERS


def forms(loads: bool = False, tokenizer: Any = len) -> Compactor:
    return Compactor(Counter.of(None, tokenizer=tokenizer), loads)


def group(result: str, arguments: str = "{}", name: str = "look") -> tuple[Message, ...]:
    return assistant(tool_calls=[ToolCall("c1", name, arguments)]), tool("c1", result)


# Worked cases: a token is a character.


def test_a_form_with_an_image_counts_by_the_model_it_is_sent_to() -> None:
    picture = Message("user", (Image("https://example.com/a.png", width=1_600, height=1_200),))
    for formula in ("openai-tiles", "openai-tiles-4o-mini", "openai-tiles"):
        counter = Counter("chars/4", image_formula=formula)
        compactor = Compactor(counter, False, Results(), Ladder(), 6_000)
        assert compactor.form(CUT, (picture,)) == ((picture,), counter.message(picture))


def test_a_long_result_shows_its_beginning_its_end_and_how_much_is_missing() -> None:
    shown = forms().result(tool("c1", "a" * 100 + "b" * 100), 80)
    head, line, tail = shown.text.split("\n")
    assert (head, line, tail) == ("a" * 29, "[143 tokens left out]", "b" * 28)
    assert len(shown.text) <= 80
    assert shown.tool_call_id == "c1"


def test_the_line_names_the_tool_that_reads_the_rest_where_there_is_one() -> None:
    shown = forms(loads=True).result(tool("c1", "a" * 500), 120)
    assert "tokens left out; load_result('c1') reads them]" in shown.text


@pytest.mark.parametrize(("keep", "first", "last"), [(("head",), "a", "]"), (("tail",), "[", "b")])
def test_only_one_end_may_be_kept(keep: Any, first: str, last: str) -> None:
    shown = forms().result(tool("c1", "a" * 200 + "b" * 200), 90, keep).text
    assert (shown[0], shown[-1]) == (first, last)


def test_a_result_within_its_ceiling_stays_as_it_is() -> None:
    message = tool("c1", "a" * 80)
    assert forms().result(message, 80) is message


def test_the_ceiling_is_a_share_of_the_room_and_never_below_64() -> None:
    assert Results().ceiling(1_000) == 250
    assert Results(0.1).ceiling(1_000) == 100
    assert Results().ceiling(100) == 64


def test_json_is_cut_between_elements() -> None:
    rows = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)])
    head = forms().result(tool("c1", rows), 300).text.split("\n")[0]
    assert head.endswith("},")
    assert json.loads(head[:-1] + "]")[0] == {"id": 0, "name": "row 0"}


def test_lines_are_cut_between_lines() -> None:
    rows = "\n".join(f"row {n}: {'x' * 20}" for n in range(100))
    head, _, tail = forms().result(tool("c1", rows), 400).text.partition("\n[")
    assert rows.startswith(f"{head}\nrow ")
    assert rows.endswith(f"\n{tail.partition(']' + chr(10))[2]}")


def test_files_in_a_result_go_before_its_text() -> None:
    file = Attachment("id", "photo.png", 10, "image")
    message = Message("tool", "seen", tool_call_id="c1", attachments=(file,))
    counter = Counter.of(None, tokenizer=len, attachment_tokens={"image": 500})
    shown = Compactor(counter).result(message, 100)
    assert shown.attachments == ()
    assert shown.text.startswith("seen\n[")


def test_a_stub_is_one_line_with_tool_and_size() -> None:
    result = group("r" * 400)[1]
    assert forms().stub(result, "look").text == "[look: 400 tokens, left out]"
    loads = forms(loads=True).stub(result, "look").text
    assert loads == "[look: 400 tokens, left out; load_result('c1') reads them]"


def test_a_short_result_is_no_stub() -> None:
    result = tool("c1", "found nothing")
    assert forms().stub(result, "look") is result


def test_long_arguments_are_shortened_in_a_stub_and_stay_json() -> None:
    given = {"path": "a.txt", "text": "x" * 300, "rows": list(range(100))}
    called = assistant(tool_calls=[ToolCall("c1", "write", json.dumps(given))])
    call = forms().calls(called, STUB).tool_calls[0]
    shown = json.loads(call.arguments)
    assert shown["path"] == "a.txt"
    assert shown["text"] == "x" * 40 + " [260 characters left out]"
    assert shown["rows"].startswith("[0,1,2")
    assert (call.id, call.name) == ("c1", "write")


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_shortened_arguments_have_the_spaces_of_the_call(separators: tuple[str, str]) -> None:
    """Frameworks parse arguments and write them again: what was counted is what is sent."""
    given = {"path": "a.py", "text": "word " * 400}
    call = ToolCall("c", "write", json.dumps(given, separators=separators))
    (shown,) = forms().calls(assistant(tool_calls=[call]), STUB).tool_calls
    assert len(shown.arguments) < len(call.arguments)
    assert shown.arguments == json.dumps(json.loads(shown.arguments), separators=separators)


def test_arguments_that_are_no_json_are_named_by_their_size() -> None:
    called = assistant(tool_calls=[ToolCall("c1", "write", "{" + "x" * 100)])
    assert forms().calls(called, STUB).tool_calls[0].arguments == '{"left_out":"101 tokens"}'


def test_arguments_nested_too_deeply_are_named_by_their_size() -> None:
    # Python 3.11 reads 990 levels, 3.14 more than 50,000.
    deep = '{"x":' * 200_000 + "1" + "}" * 200_000
    call = forms().calls(group("r", deep)[0], STUB).tool_calls[0]
    assert json.loads(call.arguments) == {"left_out": f"{len(deep):,} tokens"}


def test_calls_and_their_result_at_each_level() -> None:
    compactor = Compactor(Counter.of(None, tokenizer=len), False, Results(), Ladder(), 4_000)
    messages = group("r" * 3_000)
    sizes = [compactor.form(level, messages)[1] for level in (CUT, SHORT, STUB)]
    assert sizes == [1_006, 206, 36]
    assert compactor.deepest == STUB


def test_a_text_of_more_than_half_a_window_is_cut_to_a_quarter_of_it() -> None:
    compactor = Compactor(Counter.of(None, tokenizer=len), False, Results(), Ladder(), 1_000)
    (half,), _ = compactor.form(CUT, (user("t" * 500),))
    (cut,), tokens = compactor.form(CUT, (user("t" * 501),))
    assert half.text == "t" * 500
    assert tokens == len(cut.text) == 250
    assert cut.text.startswith("t" * 100)
    assert cut.text.endswith("t" * 100)


def test_without_a_ladder_a_result_is_only_cut() -> None:
    compactor = Compactor(Counter.of(None, tokenizer=len), False, Results(), None, 4_000)
    assert compactor.deepest == CUT
    sizes = {compactor.form(level, group("r" * 3_000))[1] for level in (CUT, SHORT, STUB)}
    assert sizes == {1_006}


# Slots.


def render(result: str, budget: int = 1_000, **options: Any) -> Any:
    slots = Slots(budget, tokenizer=len, **options)
    slots.add("history", [user("go"), *group(result)])
    return slots.render()


def test_a_result_that_has_the_window_to_itself_stays_whole() -> None:
    window = render("r" * 600)
    assert window.tokens == 608
    assert {each.status for each in window.report.slots[0].decisions} == {"kept"}


def test_a_result_that_does_not_fit_is_told_with_what_it_asked_for() -> None:
    window = render("r" * 1_200)
    (kept, short) = window.report.slots[0].decisions
    assert (kept.status, short.status, short.reason) == ("kept", "short", "over_budget")
    assert (short.tokens_asked, short.tokens_kept) == (1_206, 256)
    assert window.tokens == window.report.slots[0].tokens_kept == 258


def test_without_results_a_result_goes_with_its_call() -> None:
    for off in (None, False):
        assert render("r" * 1_200, results=off).tokens == 0
    assert render("r" * 1_200, results=True) == render("r" * 1_200, results=Results())


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Results(0), InvalidInput),
        (lambda: Results(1.1), InvalidInput),
        (lambda: Results("x"), InvalidType),  # type: ignore[arg-type]
        (lambda: Results(keep="head"), InvalidType),  # type: ignore[arg-type]
        (lambda: Results(keep=()), InvalidInput),
        (lambda: Results(keep=("head", "head")), InvalidInput),
        (lambda: Ladder(short_tokens=10), InvalidInput),
        (lambda: Ladder(keep_groups=-1), InvalidInput),
        (lambda: Ladder(stubs=1), InvalidInput),  # type: ignore[arg-type]
        (lambda: Slots(10).add("x", [], results=3), InvalidType),  # type: ignore[arg-type]
        (lambda: Slots(10).add("x", [], ladder=3), InvalidType),  # type: ignore[arg-type]
    ],
)
def test_wrong_rules_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"Results|Ladder"):
        make()


# Any text.

TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(["word ", "日本", "👩\u200d🚀", "e\u0301", "🇩🇪", "\r\n", '{"a": 1},'])
    ).map("".join),
    st.lists(st.integers(), max_size=80).map(json.dumps),
)


@given(TEXTS, st.integers(64, 200), st.sampled_from(sorted(TOKENIZERS)), st.booleans())
def test_a_form_fits_is_never_larger_and_cut_at_characters(
    text: str, most: int, tokenizer: str, loads: bool
) -> None:
    made = forms(loads, TOKENIZERS[tokenizer])
    message = tool("c1", text)
    whole = made.content_tokens(message)
    shown = made.result(message, most)
    if tokenizer != "wild":  # where a shorter text may have more tokens
        assert made.content_tokens(shown) <= min(whole, most)
    if shown is not message:
        head = shown.text[: shown.text.rindex("\n[") if "\n[" in shown.text else 0]
        assert text.startswith(head)
        assert is_boundary(text, len(head))
        end = shown.text.rindex("]") if shown.text.endswith("]") else None
        assert end is not None or text.endswith(shown.text.rpartition("]\n")[2])
    assert made.content_tokens(made.stub(message, "look")) <= whole


@given(TEXTS, TEXTS, st.integers(64, 300), st.sampled_from(("characters", "words", "chars/4")))
def test_each_level_is_at_most_as_large_as_the_one_above(
    result: str, argument: str, short: int, tokenizer: str
) -> None:
    counter = Counter.of(None, tokenizer=TOKENIZERS[tokenizer])
    compactor = Compactor(counter, False, Results(), Ladder(short_tokens=short), 1_200)
    messages = group(result, json.dumps({"text": argument}))
    whole = sum(map(counter.message, messages))
    sizes = [whole, *(compactor.form(level, messages)[1] for level in (CUT, SHORT, STUB))]
    assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=20)
@given(TEXTS)
def test_the_same_message_has_the_same_bytes(text: str) -> None:
    message = tool("c1", text)
    assert forms().result(message, 70) == forms().result(message, 70)
    made = forms()
    assert made.result(message, 70) is made.result(message, 70)
