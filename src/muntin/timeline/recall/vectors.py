"""Vectors of an embedder beside the words: stored in one byte a dimension, and blended.

Pure. Vectors find texts that are near in meaning without a common word; how much they count beside
the words was measured.
"""

from __future__ import annotations

import math
from array import array
from base64 import b85decode, b85encode
from collections.abc import Sequence
from operator import mul
from typing import Any

from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.timeline.recall.ranking import Hit, Question

# The embedder's weight beside the words, and the share of a message that a neighbour counts.
BLEND, NEIGHBOUR = 0.3, 0.7
# Of more messages only the newest are compared: this is plain Python.
MOST_COMPARED = 10_000
# This many vectors are stored together.
CHUNK = 256
_WHOLE = 127
_MARK = "muntin-vectors-1:"


def checked(rows: object, count: int) -> list[list[float]]:
    """Return the vectors of an embedder, with length 1; refuse anything else."""
    if not isinstance(rows, Sequence) and hasattr(rows, "tolist"):
        rows = rows.tolist()
    if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) != count:
        rows_text = f"{len(rows)}" if isinstance(rows, Sequence) else shown(rows)
        raise InvalidInput(f"the embedder was given {count} texts and gave {rows_text} vectors")
    unit_rows = [_unit(row) for row in rows]
    if len({len(row) for row in unit_rows}) > 1:
        raise InvalidInput("the embedder gave vectors of several dimensions")
    return unit_rows


def _unit(row: object) -> list[float]:
    values_given: Any = row.tolist() if hasattr(row, "tolist") else row
    try:
        values = [float(value) for value in values_given]
    except (TypeError, ValueError):
        raise InvalidType(f"the embedder gave {shown(row)}, which is no vector") from None
    length = math.sqrt(math.fsum(value * value for value in values))
    if not values or not math.isfinite(length):
        raise InvalidInput("the embedder gave an empty vector, or one that is not finite")
    return [value / length for value in values] if length else values


class Vectors:
    """The vectors of the first messages of an index, by number; grows at the end."""

    def __init__(self) -> None:
        self.dimension = 0
        self._values = array("b")

    def __len__(self) -> int:
        return len(self._values) // self.dimension if self.dimension else 0

    def add(self, rows: Sequence[Sequence[float]]) -> None:
        """Add vectors of length 1; refuse vectors of another dimension."""
        for row in rows:
            self._check(row)
            self.dimension = len(row)
            self._values.extend(round(value * _WHOLE) for value in row)

    def _check(self, vector: Sequence[float]) -> None:
        if self.dimension and len(vector) != self.dimension:
            raise InvalidInput(
                f"the embedder gave {len(vector)} dimensions, and {self.dimension} before; name "
                "another one by Recall(embedder=...)"
            )

    def near(self, vector: Sequence[float], within: range) -> tuple[range, list[float]]:
        """Return how similar the newest messages are to a vector, 0 to 1; neighbours count less."""
        self._check(vector)
        end = min(within.stop, len(self))
        numbers = range(max(within.start, end - MOST_COMPARED), end)
        size, values = self.dimension, self._values
        order_found = [
            max(0.0, sum(map(mul, values[n * size : (n + 1) * size], vector)) / _WHOLE)
            for n in numbers
        ]
        for order in (range(1, len(order_found)), range(len(order_found) - 2, -1, -1)):
            step = order.step
            for n in order:
                order_found[n] = max(order_found[n], NEIGHBOUR * order_found[n - step])
        return numbers, order_found

    def pack(self, number: int) -> str:
        """Return a whole chunk as text that a store can keep."""
        size = CHUNK * self.dimension
        data = self._values[number * size : (number + 1) * size].tobytes()
        return f"{_MARK}{self.dimension}:{b85encode(data).decode('ascii')}"

    def take(self, text: str) -> bool:
        """Add a stored chunk; False if it has another version, or is broken."""
        mark, dimension, data, *_ = *text.split(":", 2), "", ""
        try:
            values = array("b", b85decode(data))
        except ValueError:
            return False
        whole = dimension.isdecimal() and len(values) == CHUNK * int(dimension)
        if f"{mark}:" != _MARK or not whole or self.dimension not in (0, int(dimension)):
            return False
        self.dimension = int(dimension)
        self._values.extend(values)
        return True


def blend(
    hits: Sequence[Hit], question: Question, near: tuple[range, Sequence[float]]
) -> list[Hit]:
    """Return hits by words and by vectors together, best first, the newer first among equals."""
    most = sum(word.weight for word in question.words) or 1.0
    scores = {hit.number: hit.score / most for hit in hits}
    for number, alike in zip(*near, strict=True):
        if alike:
            scores[number] = scores.get(number, 0.0) + BLEND * alike
    order = sorted(scores, key=lambda number: (-scores[number], -number))
    return [Hit(number, scores[number] * most) for number in order]
