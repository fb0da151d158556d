"""The harness of recall: small sizes, and the aims that do not depend on the machine."""

from __future__ import annotations

from bench import recall
from bench.recall_peers import newest, peers
from bench.talks import TALKS


def test_needles_and_facts_are_found_in_every_language():
    figures = list(recall.evidence(short=True))
    assert [figure for figure in figures if not figure.held] == []
    assert len(figures) == 1 + len(TALKS) + 2 * len(list(peers()))


def test_what_trimming_keeps_has_few_of_the_needles():
    cases = list(recall.needles(60, 6))
    assert len(cases) == 6
    assert recall.share(cases, newest, recall.TOKENS) < 0.5
    assert all(case.evidence.strip('"') in case.question for case in cases)


def test_the_growth_is_measured_and_a_message_is_small():
    grown = [figure.work for figure in recall.growth((200, 400, 800)) if figure.points]
    assert grown == ["a question", "adding a message", "memory"]
    assert all(figure.held for figure in recall.sizes(1_000))


def test_an_index_that_follows_is_measured_beside_appends():
    assert recall.appending(20).ratio > 0
