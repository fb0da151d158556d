"""The harness of recall: small sizes, and the aims that do not depend on the machine."""

from __future__ import annotations

from bench import recall
from bench.talks import TALKS


def test_needles_and_facts_are_found_in_every_language():
    figures = list(recall.evidence(short=True))
    assert [figure for figure in figures if not figure.held] == []
    assert len(figures) == 3 + len(TALKS)


def test_what_trimming_keeps_has_few_of_the_needles():
    cases = list(recall.needles(60, 6))
    assert len(cases) == 6
    assert recall.share(cases, recall.newest, recall.TOKENS) < 0.5
    assert all(case.evidence.strip('"') in case.question for case in cases)


def test_the_growth_is_measured_and_a_message_is_small():
    figures = {figure.work: figure for figure in recall.growth((200, 400, 800))}
    assert figures["a question"].points
    assert figures["bytes of a message, stored"].held


def test_an_index_that_follows_is_measured_beside_appends():
    assert recall.appending(20).ratio > 0
