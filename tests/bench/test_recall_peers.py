"""What recall is compared with, case by case, and the harness that scores it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench import recall, recall_peers
from bench.recall_peers import COUNTER, bm25, filled, newest, peers
from bench.talks import TALKS
from muntin import Message, assistant, tool, user

SAID = [
    user("The cello stands in the cellar."),
    assistant("Noted."),
    user("Rain again, all day."),
    tool("c1", "Reservation QX7731 is paid."),
    user("Snow tomorrow."),
]
COSTS = [COUNTER.message(each) for each in SAID]


@pytest.mark.parametrize(
    ("numbers", "tokens", "kept"),
    [
        ([0, 3], sum(COSTS), [0, 3]),
        ([3, 0], sum(COSTS), [3, 0]),
        ([0, 1], COSTS[1], [1]),
        ([0, 1], COSTS[0], [0]),
        ([0, 1], 0, []),
        ([], 1_000, []),
    ],
)
def test_a_window_is_filled_with_the_best_that_fit(numbers, tokens, kept):
    assert filled(SAID, numbers, tokens) == "\n".join(SAID[number].text for number in kept)


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        (sum(COSTS), 5),
        (sum(COSTS) - 1, 4),
        (COSTS[4] + COSTS[3], 2),
        (COSTS[4], 1),
        (COSTS[4] - 1, 0),
        (0, 0),
    ],
)
def test_the_newest_that_fit_stop_at_the_first_that_does_not(tokens, kept):
    texts = [each.text for each in SAID[len(SAID) - kept :]]
    assert newest(SAID, "anything", tokens) == "\n".join(reversed(texts))


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("Where is the cello?", [0]),
        ("Is QX7731 paid?", [3]),
        ("cello rain", [2, 0]),
        ("zeppelin", []),
        ("", []),
    ],
)
def test_bm25_gives_the_messages_that_have_the_words_the_rarest_and_shortest_first(question, best):
    assert bm25(SAID, question, 1_000) == "\n".join(SAID[number].text for number in best)


def test_bm25_prefers_the_newer_of_two_that_are_alike():
    said = [user("A cello here."), user("A cello here."), user("Something else.")]
    assert bm25(said, "cello", COUNTER.message(said[0])) == "A cello here."
    told = [user("A cello one."), user("A cello two."), user("Something else.")]
    assert bm25(told, "cello", COUNTER.message(told[0])) == "A cello two."


def test_those_that_need_nothing_are_always_compared(monkeypatch):
    monkeypatch.setattr(recall_peers, "find_spec", lambda name: None)
    assert [name for name, _ in peers()] == ["the newest that fit", "BM25, recall's words"]
    monkeypatch.setattr(recall_peers, "find_spec", lambda name: name != "sklearn")
    assert [name for name, _ in peers()][2:] == ["LangChain trim_messages", "rank_bm25"]
    monkeypatch.setattr(recall_peers, "find_spec", lambda name: name)
    assert len(list(peers())) == 5


def test_rank_bm25_is_asked_with_the_words_between_spaces(monkeypatch):
    given: list[Any] = []

    class BM25Okapi:
        def __init__(self, corpus: list[list[str]]) -> None:
            given.append(corpus)

        def get_scores(self, query: list[str]) -> list[float]:
            given.append(query)
            return [0.5, 0.0, 0.0, 2.0, 0.5]

    module: Any = ModuleType("rank_bm25")
    module.BM25Okapi = BM25Okapi
    monkeypatch.setitem(sys.modules, "rank_bm25", module)
    found = recall_peers.rank_bm25(SAID, "Is QX7731 paid?", 1_000)
    assert found == "\n".join(SAID[number].text for number in (3, 4, 0))
    assert given[0][1] == ["noted."]
    assert given[1] == ["is", "qx7731", "paid?"]


def test_the_vector_store_is_asked_for_its_nearest(monkeypatch):
    asked: list[Any] = []

    class Store:
        def __init__(self, embedder: Any) -> None:
            self.embedder = embedder

        def add_texts(self, texts: list[str], ids: list[str]) -> None:
            asked.append(list(zip(ids, texts, strict=True))[3])

        def similarity_search(self, question: str, k: int) -> list[Any]:
            asked.append((question, k))
            return [SimpleNamespace(id="3"), SimpleNamespace(id="0")]

    module: Any = ModuleType("langchain_core.vectorstores")
    module.InMemoryVectorStore = Store
    monkeypatch.setitem(sys.modules, "langchain_core.vectorstores", module)
    monkeypatch.setattr(recall_peers, "Hashed", lambda texts: texts)
    assert recall_peers.vectors(SAID, "QX7731", COSTS[3]) == SAID[3].text
    assert asked == [("3", SAID[3].text), ("QX7731", recall_peers.NEAREST)]


# The harness.


def cases() -> list[recall.Case]:
    return [*recall.needles(60, 4), *recall.facts(TALKS[0], 60)]


def test_a_selection_of_nothing_scores_none_and_one_of_the_evidence_all():
    found = cases()
    assert recall.share(found, lambda messages, question, tokens: "", 1_500) == 0
    told = {case.question: case.evidence for case in found}
    assert recall.share(found, lambda messages, question, tokens: told[question], 1_500) == 1
    # To repeat the question is no evidence of a fact.
    facts = list(recall.facts(TALKS[0], 60))
    assert recall.share(facts, lambda messages, question, tokens: question, 1_500) == 0


def test_half_of_the_evidence_scores_half_and_spaces_do_not_count():
    found = [
        recall.Case(SAID, "Where?", "The cello stands in the cellar."),
        recall.Case(SAID, "What?", "No one said this."),
    ]
    assert recall.share(found, newest, 1_000) == 0.5
    spread = "The cello\n  stands in\tthe cellar."
    assert recall.share(found[:1], lambda messages, question, tokens: spread, 1_000) == 1


def test_the_evidence_is_in_the_conversation_and_the_budget_is_handed_on():
    seen: list[int] = []

    def select(messages: Any, question: str, tokens: int) -> str:
        seen.append(tokens)
        said: list[Message] = list(messages)
        return " ".join(each.text for each in said)

    found = cases()
    assert recall.share(found, select, 77) == 1
    assert seen == [77] * len(found)
