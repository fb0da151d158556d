"""The allocator, as a table of literals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.planning.limits import Limits, allocate, limits, ratio_of


@pytest.mark.parametrize(
    ("amount", "ratio", "expected"),
    [
        (100, 0.29, 29),  # 28.999999999999996 in binary
        (100, 0.57, 57),
        (1_000, 0.001, 1),
        (10, 0.99, 9),
        (3, 1 / 3, 0),  # what was written is 0.3333333333333333
        (0, 0.5, 0),
        (100, 1.0, 100),
        (10**15, 1e-15, 1),
    ],
)
def test_ratios_are_exact_decimals(amount, ratio, expected):
    assert ratio_of(amount, ratio) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Limits(None, 0)),
        ({"max_ratio": 0.5}, Limits(50, 0)),
        ({"max_tokens": 30}, Limits(30, 0)),
        ({"max_ratio": 0.5, "max_tokens": 30}, Limits(30, 0)),
        ({"max_ratio": 0.3, "min_tokens": 40}, Limits(40, 40)),
        ({"max_ratio": 0.3, "min_tokens": 40, "max_tokens": 60}, Limits(40, 40)),
        ({"min_ratio": 0.1}, Limits(None, 10)),
        ({"min_ratio": 0.1, "min_tokens": 25}, Limits(None, 25)),
        ({"min_ratio": 0.4, "min_tokens": 25}, Limits(None, 40)),
        ({"min_ratio": 0.8, "max_ratio": 0.5}, Limits(50, 50)),
        ({"min_ratio": 0.5, "max_tokens": 20}, Limits(20, 20)),
        ({"max_ratio": 0.0}, Limits(0, 0)),
        ({"max_ratio": 1.0, "min_tokens": 500}, Limits(None, 500)),
    ],
)
def test_ceilings_and_floors_of_a_budget_of_100(options, expected):
    assert limits(100, **options) == expected


@pytest.mark.parametrize(
    ("amount", "asks", "weights", "expected"),
    [
        (10, [], [], []),
        (10, [3, 4], [1, 1], [3, 4]),  # all fit
        (10, [10, 10], [1, 1], [5, 5]),
        (10, [2, 20], [1, 1], [2, 8]),  # what one does not need goes to the others
        (12, [10, 10], [2, 1], [8, 4]),
        (12, [3, 10, 10], [1, 1, 1], [3, 5, 4]),  # the odd token goes to the first
        (100, [60, 60, 10], [6, 3, 1], [60, 30, 10]),
        (0, [5, 5], [1, 1], [0, 0]),
        (7, [5, 5], [0, 0], [4, 3]),  # no weights: the same weight
        (5, [5, 5], [1, 0], [5, 0]),
        (6, [5, 5], [1, 0], [5, 1]),
    ],
)
def test_a_remainder_is_shared_max_min_fairly(amount, asks, weights, expected):
    assert allocate(amount, asks, weights) == expected


claims = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=6)


@given(st.integers(0, 120), claims)
def test_shares_never_exceed_the_ask_and_use_all_there_is(amount, claims):
    asks, weights = [ask for ask, _ in claims], [weight for _, weight in claims]
    shares = allocate(amount, asks, weights)
    assert all(0 <= share <= ask for share, ask in zip(shares, asks, strict=True))
    assert sum(shares) == min(amount, sum(asks))


@given(st.integers(0, 120), claims)
def test_nobody_could_get_more_without_one_with_less_per_weight_losing(amount, claims):
    asks, weights = [ask for ask, _ in claims], [weight for _, weight in claims]
    shares = allocate(amount, asks, weights)
    for i, ask in enumerate(asks):
        if shares[i] == ask or not weights[i]:
            continue
        for j, other in enumerate(shares):
            if j != i and weights[j]:
                # one token of rounding on either side
                assert (other - 1) * weights[i] <= (shares[i] + 1) * weights[j]
