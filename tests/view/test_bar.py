"""The window as one bar on a terminal."""

import re

import pytest

from muntin import Slots
from muntin.view.bar import bar, widths
from tests.view.sample import sample


def test_the_bar_has_the_width_asked_for_and_a_legend_that_adds_up():
    line, legend = bar(sample(), width=60, colour=False).split("\n")
    assert len(line) == 60
    assert sum(int(number) for number in re.findall(r"(\d+)(?:   |$)", legend)) == 100


def test_the_frame_of_the_answer_is_in_the_legend_so_that_it_adds_up():
    slots = Slots(100)
    slots.add("input", "How far is it to the moon?")
    legend = bar(slots.render(), width=60, colour=False).split("\n")[1]
    assert "(answer) 3" in legend
    assert sum(int(number) for number in re.findall(r"(\d+)(?:   |$)", legend)) == 100


def test_colours_are_only_used_when_asked_for():
    assert "\x1b" not in bar(sample(), colour=False)
    assert "\x1b[38;5;" in bar(sample())


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([], 10, []),
        ([1, 1], 10, [5, 5]),
        ([99, 1], 10, [9, 1]),
        ([1000, 1, 1], 10, [8, 1, 1]),
        ([1, 2], 9, [3, 6]),
        ([5, 5, 5], 2, [1, 1, 1]),
    ],
)
def test_columns_are_divided_in_proportion_and_nobody_vanishes(sizes, total, expected):
    assert widths(sizes, total) == expected
