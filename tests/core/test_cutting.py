"""A text is cut where a person would allow it, and no shorter than it must be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.counting.exact import openai_tokenizer
from muntin.core.cutting import cut_with_line, is_boundary, longest, whole_elements

FAMILY = "👨\u200d👩\u200d👧"
WAVE = "👋🏽"
FLAGS = "🇩🇪🇫🇷"
ACCENT = "e\u0301"
SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
HANGUL = "\u1112\u1161\u11ab"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("abc", [0, 1, 2, 3]),
        (ACCENT + "x", [0, 2, 3]),
        (FAMILY, [0, 5]),
        (WAVE, [0, 2]),
        (FLAGS, [0, 2, 4]),
        ("a" + FLAGS, [0, 1, 3, 5]),
        (SCOTLAND, [0, 7]),
        (HANGUL, [0, 3]),
        ("a\r\nb", [0, 1, 3, 4]),
        ("❤\ufe0f", [0, 2]),
        ("क\u094d", [0, 2]),
        ("漢字", [0, 1, 2]),
    ],
)
def test_a_cut_never_splits_what_a_person_sees_as_one_character(text, allowed):
    assert [i for i in range(len(text) + 1) if is_boundary(text, i)] == allowed


def test_the_longest_piece_keeps_the_end_or_the_beginning():
    assert longest("abcdef", 6, 4, len, "tail") == ("cdef", 4)
    assert longest("abcdef", 6, 4, len, "head") == ("abcd", 4)
    assert longest("abcdef", 6, 0, len, "tail") is None
    assert longest("ab" + FAMILY, 7, 4, len, "tail") is None


def best(text: str, limit: int, measure, keep: str) -> str | None:
    """Try every piece, the slow way."""
    for length in range(len(text) - 1, 0, -1):
        start, end = (0, length) if keep == "head" else (len(text) - length, len(text))
        if (
            is_boundary(text, start)
            and is_boundary(text, end)
            and measure(text[start:end]) <= limit
        ):
            return text[start:end]
    return None


marked = st.text(st.sampled_from("ab \u0301\u200d🇩👍漢"), min_size=1, max_size=40)


@given(marked, st.integers(0, 40), st.sampled_from(["head", "tail"]))
def test_no_longer_piece_would_have_fitted(text, limit, keep):
    found = longest(text, len(text), min(limit, len(text) - 1), len, keep)
    assert (found and found[0]) == best(text, min(limit, len(text) - 1), len, keep)


words = st.lists(
    st.sampled_from(["hello", " tokenization", "\n\n", "  ", "数据", "x = 1", " antidisestablish"]),
    min_size=2,
    max_size=12,
).map("".join)


@given(words, st.data(), st.sampled_from(["head", "tail"]))
def test_with_real_tokens_the_piece_fits_and_no_longer_one_nearby_does(text, data, keep):
    count = openai_tokenizer("o200k_base").count
    whole = count(text)
    limit = data.draw(st.integers(0, max(0, whole - 1)))
    found = longest(text, whole, limit, count, keep)
    if found is not None:
        assert count(found[0]) == found[1] <= limit
        assert text.startswith(found[0]) if keep == "head" else text.endswith(found[0])
        for more in range(1, 17):
            size = len(found[0]) + more
            if size < len(text):
                piece = text[:size] if keep == "head" else text[-size:]
                assert count(piece) > limit


def test_a_measure_that_makes_no_sense_still_ends_and_never_exceeds():
    sizes = iter(range(10_000))
    found = longest("x" * 300, 50, 20, lambda piece: next(sizes) * 7919 % 41, "tail")
    assert found is None or found[1] <= 20


def test_a_long_text_is_measured_a_few_times_not_once_a_character():
    calls: list[int] = []

    def measure(piece: str) -> int:
        calls.append(len(piece))
        return len(piece) // 4

    found = longest("word " * 40_000, 50_000, 8_000, measure, "tail")
    assert found is not None
    assert found[1] == 8_000
    assert len(calls) < 30


def missing(kept: str) -> str:
    return f"[{len(kept)} stay]"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_beginning_and_end_are_cut_between_lines_where_one_ends_near(end):
    text = end.join(f"{n:02} {'x' * 17}" for n in range(20))
    shown, size = cut_with_line(text, len(text), 150, len, missing)
    head, _, rest = shown.partition("\n[")
    line, _, tail = rest.partition("]\n")
    assert size == len(shown) <= 150
    assert line == f"{len(head) + len(tail)} stay"
    assert text.startswith(f"{head}{end}")
    assert text.endswith(f"{end}{tail}")


def test_a_text_without_a_line_end_near_is_cut_anywhere():
    text = "a" * 100 + "\n" + "b" * 100
    shown, _ = cut_with_line(text, len(text), 80, len, missing)
    assert shown == f"{'a' * 35}\n[69 stay]\n{'b' * 34}"


def test_where_nothing_fits_the_line_stands_alone():
    assert cut_with_line("abcdef" * 9, 54, 8, len, missing) == ("[0 stay]", 8)


@pytest.mark.parametrize(
    ("head", "cut"),
    [
        ('[1, 2, 3, "a, b', "[1, 2, 3,"),
        ('{"a": 100000, "b": "x\\", y', '{"a": 100000,'),
        ('["long and without any end', '["long and without any end'),
    ],
)
def test_json_ends_at_commas_outside_of_strings(head, cut):
    assert whole_elements(head) == cut
