"""Products of interfaces, models and shapes: three of each in CI, all of them in `make soak`.

A rule that is tested for each of many values lists them with `sample`, and for combinations of
them with `cover`; with `MUNTIN_SOAK=1` in the environment both give all there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, TypeVar

T = TypeVar("T")

# How many examples a property draws, where it does not say otherwise.
EXAMPLES = int(os.environ.get("MUNTIN_EXAMPLES", "60"))
IS_WHOLE = bool(os.environ.get("MUNTIN_SOAK"))
# The interfaces of a product in CI.
THREE = ("conversation", "generator", "sources")


def sample(every: Iterable[T], *names: T) -> list[T]:
    """Return those that are named, else three of them from first to last; all of them in a soak."""
    values = list(every)
    if IS_WHOLE:
        return values
    chosen = names or (values[0], values[len(values) // 2], values[-1])
    assert all(name in values for name in chosen), chosen
    return [value for value in values if value in chosen]


def cover(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations in which each value of each list is there; all of them in a soak."""
    columns: Sequence[Sequence[Any]] = [[*values] for values in lists]
    if IS_WHOLE:
        return list(product(*columns))
    rows = range(max(map(len, columns)))
    return [tuple(values[row % len(values)] for values in columns) for row in rows]


# Names of models: one whose caching is priced, one whose caching is not, one that nobody knows.
PRICED, UNPRICED, UNKNOWN = "anthropic/claude-sonnet-4-6", "ollama/llama3", "nobody/unknown-model"
NAMES = sample([PRICED, UNPRICED, UNKNOWN, "openai/gpt-5.2"], PRICED, UNPRICED, UNKNOWN)
# The same, and in a soak a model without a name.
MODELS: list[str | None] = [*NAMES, None] if IS_WHOLE else [*NAMES]
