"""What it costs to turn a window into a request, and to read a streamed answer.

python bench/wire.py [--short] [--out FILE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.conversations import history
from bench.measure import Figure, beside, run
from muntin import Slots, Window
from muntin.wire import anthropic, google, responses
from muntin.wire import chat as openai

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


def window() -> Window:
    """Return a window of so many recorded messages, with their calls and results."""
    slots = Slots(10_000_000, tokenizer="chars/4")
    slots.add("history", history(MESSAGES))
    return slots.render()


def plain(value: Any) -> str:
    """Write the bytes of a request to Google as json.dumps would have to."""
    return str(value)


def encoding(rounds: int) -> Iterator[Figure]:
    """Compare each encoding with one json.dumps of what it made."""
    given = window()
    for name, module in MODULES.items():
        request = module.encode(given)

        def dump(request: Any = request) -> object:
            return json.dumps(request, default=plain)

        def make(module: Any = module) -> object:
            return module.encode(given)

        work, peer = f"encode {MESSAGES:,} messages: {name}", "json.dumps of the request"
        yield beside(work, peer, make, dump, rounds, SHARE, clock=process_time)


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


def streaming(rounds: int) -> Iterator[Figure]:
    """Compare a piece of a reply with one of a reply a tenth as long."""
    for name, module in MODULES.items():

        def read(count: int, module: Any = module, name: str = name) -> Callable[[], object]:
            chunks = pieces(name, count)

            def assemble() -> object:
                assembler = module.Assembler()
                for chunk in chunks:
                    assembler.feed(chunk)
                return assembler.reply()

            return assemble

        work, peer = f"one of {LONG:,} pieces: {name}", f"Muntin, one of {SHORT:,} pieces"
        whole = beside(work, peer, read(LONG), read(SHORT), rounds, GROWTH, clock=process_time)
        yield replace(whole, ours=whole.ours / LONG, theirs=whole.theirs / SHORT)


def measure(short: bool) -> Iterator[Figure]:
    """Measure everything."""
    rounds = 5 if short else 40
    yield from encoding(rounds)
    yield from streaming(rounds)


if __name__ == "__main__":
    run(__doc__, measure)
