"""Usage: sums, and reading what was kept."""

from __future__ import annotations

import pytest

from muntin.core.usage import SessionUsage, Usage


def test_usages_add_up_and_are_told_in_words():
    answers, summaries = Usage(1_000, 20, cache_read=400), Usage(50, 5)
    used = SessionUsage(answers, summaries)
    assert used.total == Usage(1_050, 25, cache_read=400)
    assert list(used.words()) == [
        "billed for answers: 1,000 in (400 from the cache), 20 out",
        "billed for summaries: 50 in, 5 out",
    ]
    assert list(SessionUsage().words()) == []


@pytest.mark.parametrize(
    "value", [None, 7, "x", [], {"input": -1}, {"input": "9"}, {"input": True}]
)
def test_what_is_no_count_is_nothing(value):
    assert Usage.from_dict(value) == Usage()


def test_what_is_kept_is_read_again():
    assert Usage.from_dict({"input": 3, "output": 2, "other": 1}) == Usage(3, 2)
    vain = SessionUsage(summaries=Usage(1, 1)).and_in_vain('{"input": 3, "output": 2}')
    assert vain == SessionUsage(summaries=Usage(4, 3))
    assert SessionUsage().and_in_vain(None) == SessionUsage()
