"""The time to the first token on a real key-value cache, for what each policy sends.

    python bench/first_token.py [--short] [--out FILE]

Replays requests 100 to 300 of `bench/gpu/requests.json` (one run, window of 32,000 tokens) on a
model of the shape of an 8B one. What a request shares with the one before is in the cache; the rest
is read. Needs torch and a GPU; without them nothing is measured, and that is said.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, run

FILE = Path(__file__).parent / "gpu" / "requests.json"
# While windows fill, every policy does the same.
SETTLED, LAST, SHORT_LAST = 100, 300, 120


def p95(times: Sequence[float]) -> float:
    """Return the 95th percentile."""
    ranked = sorted(times)
    return ranked[-(-len(ranked) * 95 // 100) - 1]


def missing() -> str:
    """Say what is missing here to measure; nothing if all is there."""
    if find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "there is no GPU"


def figures(own: str, times: dict[str, list[float]], place: str, note: str) -> Iterator[Figure]:
    """State Muntin's default beside every other policy."""
    for name, taken in times.items():
        for what, told in (("mean", fmean), ("95th percentile", p95)):
            yield Figure(
                work=f"{place}: time to first token, {what}",
                peer=f"the same, {name}" if name == own else name,
                ours=told(times[own]),
                theirs=told(taken),
                note=note,
            )


def measure(short: bool) -> Iterator[Figure]:
    """Replay every policy, where that is possible."""
    if why := missing():
        print(f"Nothing is measured: {why}.", file=sys.stderr)
        return
    import torch

    from bench.gpu.model import Model, Shape

    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    last = SHORT_LAST if short else LAST
    sent = {name: pairs[SETTLED:last] for name, pairs in data["policies"].items()}
    longest = max(length for pairs in sent.values() for _, length in pairs)
    model = Model(Shape(), longest)
    for length in (16, 1_000, longest, longest):  # warm up
        model.seconds(0, length)
    times: dict[str, list[float]] = {}
    for name, pairs in sent.items():
        times[name] = [model.seconds(known, length) for known, length in pairs]
        print(f"{name}: mean {fmean(times[name]) * 1e3:.1f} ms", file=sys.stderr)
    note = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    yield from figures(data["own"], times, f"{data['window']:,} tokens", note)


if __name__ == "__main__":
    run(__doc__, measure)
