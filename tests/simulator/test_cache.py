"""The cache model, by cases worked out by hand."""

from __future__ import annotations

import pytest

from muntin import InvalidInput
from muntin.core.profile import Caching
from muntin.simulator import Block, Cache, Request
from tests.simulator.cases import CLAUDE, GPT_5, GPT_56, blocks


def used(rules: Caching, *requests: Request) -> list[tuple[int, int, int]]:
    cache = Cache(rules)
    found = [cache.send(request) for request in requests]
    return [(usage.read, usage.written, usage.uncached) for usage in found]


# Automatic caching of the longest prefix.


def test_an_automatic_cache_reads_the_common_prefix_in_steps_of_128():
    first = Request(blocks(1_000, 500))
    second = Request((*blocks(1_000, 500), Block("new", 200)))
    # 1,500 tokens are 1,024 and three steps of 128: 1,408. 1,700 are 1,664 and 36 more.
    assert used(GPT_5, first, second) == [(0, 1_408, 92), (1_408, 256, 36)]


def test_an_automatic_cache_reads_nothing_below_its_minimum():
    short = Request(blocks(1_023))
    assert used(GPT_5, short, short) == [(0, 0, 1_023), (0, 0, 1_023)]
    exact = Request(blocks(1_024))
    assert used(GPT_5, exact, exact) == [(0, 1_024, 0), (1_024, 0, 0)]


def test_an_automatic_cache_reads_up_to_the_first_difference():
    first = Request(blocks(2_000, 1_000, 1_000))
    second = Request((Block(0, 2_000), Block("changed", 1_000), Block(2, 1_000)))
    # The first 2,000 are shared: 1,024 and seven steps; the last block is shared in vain.
    assert used(GPT_5, first, second)[1] == (1_920, 2_048, 32)


def test_an_older_prefix_is_found_too():
    short, other, long = (
        Request(blocks(2_000)),
        Request((Block("other", 2_000),)),
        Request(blocks(2_000, 3_000)),
    )
    assert used(GPT_5, short, other, long)[2][0] == 1_920


# Marks, with a look-back.


def test_only_what_is_marked_is_written_and_the_rest_is_plain_input():
    request = Request(blocks(2_000, 500), marks=(1,))
    assert used(CLAUDE, request, request) == [(0, 2_000, 500), (2_000, 0, 500)]


def test_a_prefix_below_the_minimum_is_silently_not_cached():
    request = Request(blocks(1_000, 500), marks=(1,))
    assert used(CLAUDE, request, request) == [(0, 0, 1_500), (0, 0, 1_500)]


def test_the_cost_is_a_quarter_more_to_write_and_a_tenth_to_read():
    cache = Cache(CLAUDE)
    request = Request(blocks(2_000, 500), marks=(1,))
    assert cache.send(request).cost == 2_000 * 1.25 + 500
    assert cache.send(request).cost == pytest.approx(2_000 * 0.1 + 500)


def test_a_growing_conversation_reads_all_it_wrote():
    first = Request(blocks(2_000, 100), marks=(2,))
    second = Request(blocks(2_000, 100, 50, 60), marks=(4,))
    assert used(CLAUDE, first, second) == [(0, 2_100, 0), (2_100, 110, 0)]


@pytest.mark.parametrize(("added", "read"), [(19, 2_000), (20, 0)])
def test_a_read_looks_at_twenty_positions_the_mark_among_them(added: int, read: int):
    first = Request(blocks(2_000), marks=(1,))
    second = Request(blocks(2_000, *[10] * added), marks=(1 + added,))
    assert used(CLAUDE, first, second)[1][0] == read


def test_a_second_mark_extends_the_look_back():
    first = Request(blocks(2_000), marks=(1,))
    second = Request(blocks(2_000, *[10] * 30), marks=(15, 31))
    assert used(CLAUDE, first, second)[1] == (2_000, 300, 0)


def test_results_that_follow_each_other_are_one_position():
    first = Request(blocks(2_000), marks=(1,))
    results = [Block(("result", n), 10, run=n > 0) for n in range(40)]
    second = Request((*blocks(2_000), *results), marks=(41,))
    assert used(CLAUDE, first, second)[1] == (2_000, 400, 0)


def test_the_look_back_finds_what_was_written_not_what_was_the_same():
    first = Request(blocks(2_000, 1_000, 1_000), marks=(3,))
    changed = Request((*blocks(2_000, 1_000), Block("changed", 1_000)), marks=(3,))
    assert used(CLAUDE, first, changed)[1] == (0, 4_000, 0)


def test_the_longest_of_several_marks_is_read():
    first = Request(blocks(2_000, 1_000), marks=(1, 2))
    second = Request((Block(0, 2_000), Block("changed", 900)), marks=(1, 2))
    assert used(CLAUDE, first, first, second) == [(0, 3_000, 0), (3_000, 0, 0), (2_000, 900, 0)]


def test_more_marks_than_the_provider_takes_are_an_error():
    request = Request(blocks(*[2_000] * 5), marks=(1, 2, 3, 4, 5))
    with pytest.raises(InvalidInput, match="5 cache marks; the provider takes 4"):
        Cache(CLAUDE).send(request)
    with pytest.raises(InvalidInput, match="outside of a request of 1 blocks"):
        Cache(CLAUDE).send(Request(blocks(10), marks=(2,)))


# Marks that must match exactly.


def test_an_exact_match_finds_nothing_between_its_marks():
    first = Request(blocks(2_000), marks=(1,))
    moved = Request(blocks(2_000, 50), marks=(2,))
    kept = Request(blocks(2_000, 50, 60), marks=(1, 3))
    assert used(GPT_56, first, moved) == [(0, 2_000, 0), (0, 2_050, 0)]
    assert used(GPT_56, first, kept)[1] == (2_000, 110, 0)


def test_of_many_marks_the_latest_four_are_written_and_the_latest_eighty_read():
    many = Request(blocks(*[2_000] * 6), marks=(1, 2, 3, 4, 5, 6))
    second = Request(blocks(*[2_000] * 2), marks=(1, 2))
    third = Request(blocks(*[2_000] * 3), marks=(1, 2, 3))
    assert used(GPT_56, many, second)[1][0] == 0
    assert used(GPT_56, many, third)[1][0] == 6_000
    first = Request(blocks(2_000), marks=(1,))
    reach = Request(blocks(2_000, *[1] * 79), marks=tuple(range(1, 81)))
    beyond = Request(blocks(2_000, *[1] * 80), marks=tuple(range(1, 82)))
    assert used(GPT_56, first, reach)[1][0] == 2_000
    assert used(GPT_56, first, beyond)[1][0] == 0


# Time.


@pytest.mark.parametrize("rules", [CLAUDE, GPT_5])
def test_a_cache_lives_for_its_time_and_a_read_renews_it(rules: Caching):
    sent = [Request(blocks(1_024), marks=(1,), at=at) for at in (0, 300, 600, 901)]
    assert [read for read, _, _ in used(rules, *sent)] == [0, 1_024, 1_024, 0]
