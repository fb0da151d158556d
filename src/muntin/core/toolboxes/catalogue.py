"""The catalogue: all tools that an application has, and the search index over them.

BM25 over weighted fields. Pure: the same tools and the same query give the same answer.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import log
from typing import Any

from muntin.core.toolboxes.rungs import BoxedTool
from muntin.core.toolboxes.words import first_sentence, fold, terms

# What a word counts in each field: a tool's name, its toolbox's name, its first sentence, its text,
# its toolbox's text, the names of its parameters, their texts and enum values.
_NAME, _BOX, _LEAD, _TEXT, _ABOUT, _PARAMETERS, _TEXTS = 3.0, 1.0, 1.5, 1.0, 1.0, 0.5, 0.25
# A word counts so many times in a field at most.
_TIMES = 3
_K1, _B = 0.9, 0.4
# What the user's question counts beside the query.
_QUESTION = 0.2
# So deep parameters are read, so many values of an enum, so many lines of a query.
_DEPTH, _VALUES, _LINES = 3, 20, 6
# A query of more words than this means words, where a word is also the plain name of a tool.
_MOST_NAMES = 12
_CHUNK = re.compile(r"[\w.:/-]+")


class Catalogue:
    """All tools of one interface by name, and the index over those of its toolboxes.

    `about` has the texts of the toolboxes by name.
    """

    def __init__(self, tools: Iterable[BoxedTool], about: Mapping[str, str]) -> None:
        self.by_name = {tool.name: tool for tool in tools}
        self.about = dict(about)
        self._tools = tuple(self.by_name.values())
        self._folded = {fold(tool.name): tool for tool in reversed(self._tools)}
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        self._lengths: list[float] = []
        for number, tool in enumerate(self._tools):
            weights: Counter[str] = Counter()
            for weight, text in self._fields(tool):
                for term, times in Counter(terms(text)).items():
                    weights[term] += weight * min(times, _TIMES)  # type: ignore[assignment]
            self._lengths.append(sum(weights.values()))
            for term, total in weights.items():
                self._postings[term][number] = total
        self._mean = sum(self._lengths) / max(1, len(self._lengths)) or 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Catalogue, (self._tools, self.about)

    @property
    def tools(self) -> Sequence[BoxedTool]:
        """All tools, in the order in which they were given."""
        return self._tools

    def _fields(self, tool: BoxedTool) -> Iterator[tuple[float, str]]:
        names: list[str] = []
        texts: list[str] = []
        _read_parameters(tool.parameters, names, texts)
        yield _NAME, tool.name
        yield _BOX, tool.box
        yield _LEAD, first_sentence(tool.description, 300)
        yield _TEXT, tool.description
        yield _ABOUT, self.about.get(tool.box, "")
        yield _PARAMETERS, " ".join(names)
        yield _TEXTS, " ".join(texts)

    def _add_scores(self, scores: dict[int, float], text: str, weight: float) -> None:
        for term in dict.fromkeys(terms(text)):
            postings = self._postings.get(term, {})
            rarity = log(1 + (len(self._tools) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, times in postings.items():
                length = 1 - _B + _B * self._lengths[number] / self._mean
                scores[number] += weight * rarity * times * (_K1 + 1) / (times + _K1 * length)

    def _rank(self, query: str, question: str) -> list[BoxedTool]:
        scores: dict[int, float] = defaultdict(float)
        self._add_scores(scores, query, 1.0)
        self._add_scores(scores, question, _QUESTION)
        order = sorted(scores, key=lambda number: (-scores[number], self._tools[number].name))
        return [self._tools[number] for number in order]

    def named(self, query: str) -> list[BoxedTool]:
        """Return the tools that a query calls by their names."""
        matches: dict[str, BoxedTool] = {}
        for chunk in _CHUNK.findall(query):
            tool = self.by_name.get(chunk) or self._folded.get(fold(chunk))
            is_plain = tool is not None and chunk == tool.name and len(query.split()) <= _MOST_NAMES
            if tool is not None and (re.search(r"[\W_]", chunk) or is_plain):
                matches[tool.name] = tool
        whole = self._folded.get(fold(query))
        if whole is not None:
            matches[whole.name] = whole
        return list(matches.values())

    def search(
        self, query: str, most: int, question: str = "", loaded: Collection[str] = ()
    ) -> list[BoxedTool]:
        """Return at most `most` tools for a query, and all that it calls by name.

        Exact names come first; if the query has nothing else, only these. Then come the lines of
        the query in turn, best first, without the tools that are `loaded`.
        """
        matches = {tool.name: tool for tool in self.named(query)}
        if matches and set(terms(query)) <= set(terms(" ".join(matches))):
            return list(matches.values())
        lines = [line for line in query.splitlines() if terms(line)][:_LINES] or [query]
        orders = [iter(self._rank(line, question)) for line in lines]
        while orders and len(matches) < most:
            for order in list(orders):
                tool = next(order, None)
                if tool is None:
                    orders.remove(order)
                elif tool.name not in loaded and len(matches) < most:
                    matches.setdefault(tool.name, tool)
        return list(matches.values())

    def near(self, name: str, most: int = 5) -> list[str]:
        """Return the names of the tools that are most like a name that no tool has."""
        names = [tool.name for tool in self._rank(name, "")]
        names += get_close_matches(name, self.by_name, most)
        return list(dict.fromkeys(names))[:most]


def _read_parameters(schema: Any, names: list[str], texts: list[str], depth: int = 0) -> None:
    """Collect the names of parameters, and their texts and enum values."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        names.append(str(name))
        if isinstance(inner, Mapping):
            texts.append(str(inner.get("description") or ""))
            values = inner.get("enum")
            texts += map(str, values[:_VALUES] if isinstance(values, list | tuple) else ())
            _read_parameters(inner, names, texts, depth + 1)
            _read_parameters(inner.get("items"), names, texts, depth + 1)
