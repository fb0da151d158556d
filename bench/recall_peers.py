"""What recall is compared with: what trimming keeps, BM25 over messages, and a vector store.

Each is a `select(messages, question, tokens)` that returns the text of a window. Of the libraries
those that are installed are compared, used as their guides use them. No embedding model can be had
without a download, so the vector store has hashed words, weighed by how rare they are.
"""

from __future__ import annotations

import math
from collections import Counter as Bag
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

from muntin import Message
from muntin.core.counting import Counter
from muntin.timeline.recall.words import terms

COUNTER = Counter.of(None)
# How many numbers a vector has, and how many messages a vector store is asked for.
DIMENSION, NEAREST = 2_048, 100

Select: TypeAlias = Callable[[Sequence[Message], str, int], str]


def filled(messages: Sequence[Message], numbers: Iterable[int], tokens: int) -> str:
    """Return the messages of these numbers, the best first, as many as fit."""
    kept_items: list[str] = []
    for number in numbers:
        cost = COUNTER.message(messages[number])
        if cost <= tokens:
            kept_items.append(messages[number].text)
            tokens -= cost
    return "\n".join(kept_items)


def newest(messages: Sequence[Message], question: str, tokens: int) -> str:
    """What trimming keeps: the newest messages that fit."""
    kept_items: list[str] = []
    for message in reversed(messages):
        tokens -= COUNTER.message(message)
        if tokens < 0:
            break
        kept_items.append(message.text)
    return "\n".join(kept_items)


def bm25(messages: Sequence[Message], question: str, tokens: int) -> str:
    """BM25 over whole messages, with the words of recall."""
    bags = [Bag(terms(message.text)) for message in messages]
    known = Bag(term for bag in bags for term in bag)
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = []
    for number, bag in enumerate(bags):
        long = 1.2 * (0.25 + 0.75 * bag.total() / mean)
        score = sum(
            math.log((len(bags) - known[term] + 0.5) / (known[term] + 0.5) + 1)
            * bag[term]
            * 2.2
            / (bag[term] + long)
            for term in set(terms(question))
        )
        scores.append((-score, -number))
    return filled(messages, (-number for score, number in sorted(scores) if score < 0), tokens)


def trim_messages(messages: Sequence[Message], question: str, tokens: int) -> str:
    """LangChain's trimming: the last messages."""
    lc: Any = import_module("langchain_core.messages")
    kinds = {"user": "human", "assistant": "ai"}
    given = [(kinds.get(message.role, "human"), message.text) for message in messages]
    costs = {message.text: COUNTER.message(message) for message in messages}
    trimmed = lc.trim_messages(
        lc.convert_to_messages(given),
        max_tokens=tokens,
        strategy="last",
        token_counter=lambda several: sum(costs[each.content] for each in several),
    )
    return "\n".join(each.content for each in trimmed)


def rank_bm25(messages: Sequence[Message], question: str, tokens: int) -> str:
    """BM25 as rank_bm25's guide has it: words are what stands between spaces."""
    made: Any = import_module("rank_bm25").BM25Okapi
    scores = made([message.text.lower().split() or [""] for message in messages]).get_scores(
        question.lower().split()
    )
    best = sorted(range(len(messages)), key=lambda number: (-scores[number], -number))
    return filled(messages, (number for number in best if scores[number] > 0), tokens)


class Hashed:
    """An embedder for LangChain: words hashed, weighed by how rare they are."""

    def __init__(self, texts: Sequence[str]) -> None:
        text: Any = import_module("sklearn.feature_extraction.text")
        pipeline: Any = import_module("sklearn.pipeline")
        hashed = text.HashingVectorizer(n_features=DIMENSION, alternate_sign=False, norm=None)
        self._made = pipeline.make_pipeline(hashed, text.TfidfTransformer()).fit(texts)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text."""
        found: list[list[float]] = self._made.transform(texts).toarray().tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self.embed_documents([text])[0]


def vectors(messages: Sequence[Message], question: str, tokens: int) -> str:
    """The nearest messages of LangChain's vector store."""
    stores: Any = import_module("langchain_core.vectorstores")
    texts = [message.text for message in messages]
    store = stores.InMemoryVectorStore(Hashed(texts))
    store.add_texts(texts, ids=list(map(str, range(len(texts)))))
    found = store.similarity_search(question, k=NEAREST)
    return filled(messages, (int(each.id) for each in found), tokens)


def peers() -> Iterator[tuple[str, Select]]:
    """Yield what there is to be compared with."""
    yield "the newest that fit", newest
    yield "BM25, recall's words", bm25
    if find_spec("langchain_core"):
        yield "LangChain trim_messages", trim_messages
    if find_spec("rank_bm25"):
        yield "rank_bm25", rank_bm25
    if find_spec("langchain_core") and find_spec("sklearn"):
        yield "LangChain vector store, hashed TF-IDF", vectors
