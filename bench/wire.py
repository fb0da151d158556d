"""What it costs to turn a window into a request, and to read a streamed answer.

Run `python bench/wire.py` for a Markdown table, with `--json` for the same as JSON. Times are
compared within one run, side by side, so that only their ratio counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.compose import history
from muntin import Slots, Window
from muntin.providers import anthropic, google, openai, responses

MESSAGES = 1_000
SHORT, LONG = 500, 5_000
# At most so much of the time of one json.dumps of the same request.
SHARE = 0.5
# A piece of a long reply against one of a short: 1, and the noise of the machine.
GROWTH = 1.25

MODULES: dict[str, Any] = {
    "OpenAI Chat Completions": openai,
    "OpenAI Responses": responses,
    "Anthropic": anthropic,
    "Google": google,
}


@dataclass(frozen=True)
class Row:
    """One comparison: microseconds of ours and of the measure, their ratio, and its bound."""

    what: str
    ours: float
    measure: float
    ratio: float
    bound: float
    holds: bool


def window() -> Window:
    """Return a window of so many recorded messages, with their calls and results."""
    slots = Slots(10_000_000, tokenizer="chars/4")
    slots.add("history", history(MESSAGES))
    return slots.render()


def side_by_side(
    ours: Callable[[], object], measure: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Return the seconds of the fastest run of each, taken by turns."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for place, work in enumerate((ours, measure)):
            start = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - start)
    return best[0], best[1]


def plain(value: Any) -> str:
    """Write the bytes of a request to Google as json.dumps would have to."""
    return str(value)


def encoding(repeats: int = 40) -> list[Row]:
    """Compare each encoding with one json.dumps of what it made."""
    given = window()
    rows = []
    for name, module in MODULES.items():
        request = module.encode(given)

        def dump(request: Any = request) -> object:
            return json.dumps(request, default=plain)

        def make(module: Any = module) -> object:
            return module.encode(given)

        ours, measure = side_by_side(make, dump, repeats)
        rows.append(row(f"encode {MESSAGES:,} messages: {name}", ours, measure, SHARE))
    return rows


def row(what: str, ours: float, measure: float, bound: float) -> Row:
    """State a comparison; it holds while the ratio is not above the bound."""
    ratio = ours / measure
    return Row(what, ours * 1e6, measure * 1e6, ratio, bound, ratio <= bound)


def pieces(name: str, count: int) -> list[dict[str, Any]]:
    """Return the chunks of a reply of so many words, as dicts; the last one ends it."""
    word, text = "word ", "word " * count
    done = {"output": [{"type": "message", "id": "m", "status": "completed",
                        "content": [{"type": "output_text", "text": text}]}]}  # fmt: skip
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    delta = {"type": "text_delta", "text": word}
    forms: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any]]] = {
        "OpenAI Chat Completions": (
            [],
            {"choices": [{"index": 0, "delta": {"content": word}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ),
        "OpenAI Responses": (
            [],
            {"type": "response.output_text.delta", "delta": word},
            {"type": "response.completed", "response": done},
        ),
        "Anthropic": (
            [{**start, "content_block": {"type": "text", "text": ""}}],
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        ),
        "Google": (
            [],
            {"candidates": [{"content": {"parts": [{"text": word}]}}]},
            {"candidates": [{"finish_reason": "STOP"}]},
        ),
    }
    first, middle, last = forms[name]
    return [*first, *[middle] * count, last]


def streaming(repeats: int = 30) -> list[Row]:
    """Compare a piece of a reply with one of a reply a tenth as long."""
    rows = []
    for name, module in MODULES.items():

        def read(count: int, module: Any = module, name: str = name) -> Callable[[], object]:
            chunks = pieces(name, count)

            def work() -> object:
                assembler = module.Assembler()
                for chunk in chunks:
                    assembler.feed(chunk)
                return assembler.reply()

            return work

        long, short = side_by_side(read(LONG), read(SHORT), repeats)
        rows.append(row(f"one of {LONG:,} pieces: {name}", long / LONG, short / SHORT, GROWTH))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Render the measurement as a Markdown table."""
    lines = [
        "| What | µs | json.dumps, or a piece of a short reply, µs | Ratio | At most | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for each in rows:
        mark = "pass" if each.holds else "FAIL"
        lines.append(
            f"| {each.what} | {each.ours:,.3g} | {each.measure:,.3g} | {each.ratio:.2f} "
            f"| {each.bound:.3g} | {mark} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = [*encoding(), *streaming()]
    print(json.dumps([asdict(each) for each in rows], indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
