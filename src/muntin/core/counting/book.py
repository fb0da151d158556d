"""The book of counts: what providers reported of the requests that were counted here.

From it follow, for each model, what its provider adds to a request and how its count grows beside
ours. It is bounded, and may be stored as JSON.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from threading import Lock
from typing import Any, NamedTuple

from muntin.core.checks import check_size, shown
from muntin.core.counting.law import Anchor, Law, Size
from muntin.errors import InvalidInput

_VERSION = 1
# How many models, reports of a model, and exceeded estimates are remembered.
_MODELS, _REPORTS, _EXCEEDED = 64, 64, 16
# A factor follows from at least so many requests that grew by at least so many tokens.
_RATIOS, _GROWTH = 3, 64
_LEAST_FACTOR, _MOST_FACTOR = 0.8, 1.6
# A report is not believed below or above this many times what was counted; a server may add more.
_ABSURD, _ADDED = 20, 20_000


class CountedRequest(NamedTuple):
    """A request that was sent: its size, the expected input, and the reported request before it in
    its conversation, of which it is a continuation; None if there is none."""

    size: Size
    estimate: int
    before: Anchor | None = None

    def is_plausible(self, reported: int) -> bool:
        """Say whether a report may be of this request: servers exist that always report the same,
        or the sum of many requests."""
        counted = self.size.counted + self.size.answers
        return counted // _ABSURD <= reported <= counted * _ABSURD + _ADDED

    def to_json(self) -> list[Any]:
        """Return JSON values."""
        before = None if self.before is None else self.before.to_json()
        return [list(self.size), self.estimate, before]

    @classmethod
    def from_json(cls, data: Any) -> CountedRequest:
        """Read what JSON makes of a request."""
        (counted, answers, has_tools), estimate, before = data
        for tokens in (counted, answers, estimate):
            check_size(tokens, "counted")
        anchor = None if before is None else Anchor.from_json(before)
        return cls(Size(counted, answers, bool(has_tools)), estimate, anchor)


@dataclass(frozen=True, slots=True)
class ModelReports:
    """The newest reports of a model: pairs of reported and counted tokens without and with tools,
    ratios of their growth, and by how much estimates were exceeded."""

    without_tools: tuple[tuple[int, int], ...] = ()
    with_tools: tuple[tuple[int, int], ...] = ()
    ratios: tuple[float, ...] = ()
    exceeded: tuple[int, ...] = ()

    def with_report(self, sent: CountedRequest, reported: int) -> ModelReports:
        """Return the reports with one more."""
        size, before = sent.size, sent.before
        anchor = Anchor(size, reported)
        field = "with_tools" if size.has_tools else "without_tools"
        pairs = (*getattr(self, field), (anchor.counted_by_provider, size.counted))
        ratios = self.ratios
        growth = 0 if before is None else size.counted - before.size.counted
        if before is not None and growth >= _GROWTH and before.size.has_tools == size.has_tools:
            ratio = (anchor.counted_by_provider - before.counted_by_provider) / growth
            ratios = (*ratios, round(ratio, 4))[-_REPORTS:]
        exceeded = (*self.exceeded, max(0, reported - sent.estimate))[-_EXCEEDED:]
        return replace(self, **{field: pairs[-_REPORTS:], "ratios": ratios, "exceeded": exceeded})

    def law(self, first: Law) -> Law:
        """Return the law of the model, which began with `first`."""
        factor = 1.0
        if len(self.ratios) >= _RATIOS:
            factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, median(self.ratios)))
        fixed = [
            round(median([reported - factor * counted for reported, counted in pairs]))
            if pairs
            else first.first[number]
            for number, pairs in enumerate((self.without_tools, self.with_tools))
        ]
        excess = max(self.exceeded, default=0)
        return replace(first, fixed=(fixed[0], fixed[1]), factor=factor, excess=excess)


class CountBook:
    """The reports of models, each by its name and its server; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._models: OrderedDict[str, ModelReports] = OrderedDict()
        self._laws: dict[str, tuple[Law, Law]] = {}

    def __repr__(self) -> str:
        return f"<CountBook models={len(self._models)}>"

    def enter(self, model: str, sent: CountedRequest, reported: int) -> None:
        """Enter what the provider reported as the input of a request."""
        if reported <= 0 or not sent.is_plausible(reported):
            return
        with self._lock:
            before = self._models.pop(model, ModelReports())
            self._models[model] = before.with_report(sent, reported)
            self._laws.pop(model, None)
            while len(self._models) > _MODELS:
                oldest, _ = self._models.popitem(last=False)
                self._laws.pop(oldest, None)

    def law(self, model: str | None, first: Law) -> Law:
        """Return the law of a model, which began with `first`."""
        if model is None or model not in self._models:
            return first
        with self._lock:
            known = self._laws.get(model)
            if known is None or known[0] != first:
                reports = self._models.get(model)
                if reports is None:
                    return first
                known = self._laws[model] = first, reports.law(first)
            return known[1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; `from_dict` reads it back."""
        with self._lock:
            models = {
                name: {
                    "without_tools": [list(pair) for pair in reports.without_tools],
                    "with_tools": [list(pair) for pair in reports.with_tools],
                    "ratios": list(reports.ratios),
                    "exceeded": list(reports.exceeded),
                }
                for name, reports in self._models.items()
            }
        return {"version": _VERSION, "models": models}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CountBook:
        """Read what `to_dict` wrote; anything else is an error."""
        if not isinstance(data, Mapping) or data.get("version") != _VERSION:
            raise InvalidInput(f"this is no book of counts that was written here: {shown(data)}")
        book = cls()
        try:
            for name, reports in list(data["models"].items())[-_MODELS:]:
                book._models[str(name)] = ModelReports(
                    _pairs(reports["without_tools"]),
                    _pairs(reports["with_tools"]),
                    tuple(float(ratio) for ratio in reports["ratios"][-_REPORTS:]),
                    tuple(check_size(n, "exceeded") for n in reports["exceeded"][-_EXCEEDED:]),
                )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"this is no book of counts that was written here: {shown(error)}"
            ) from error
        return book


def _pairs(data: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(reported), int(counted)) for reported, counted in data[-_REPORTS:])
