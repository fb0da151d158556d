"""What bound thoughts cost and what stays of them: three policies for one long run.

    python -m bench.bound [--steps 200] [--budget 20000]

An agent reads files for `--steps` requests, a new question follows every sixth answer, and `fit`
makes each request fit `--budget` tokens. Each answer has a thought with 400 hidden tokens. A
thought is valid only behind the text behind which it was made, as with Claude's newest models.

- **strip at moves** is what Muntin does for them: thoughts leave when the beginning changes.
- **strip always**: the caller sends no thoughts.
- **drop block**: every thought is sent, and the provider drops the first that is not valid and all
  behind it, on every request.

**seen** are the thoughts that the model reads in a request, on average. **cost** is that of all
requests in tokens of plain input, where the beginning that a request has in common with the one
before costs the price of a read. A block is found in the cache whole or not at all, and nothing
expires. Four characters are one token.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from muntin import fit

HIDDEN = 400
SIZES = (400, 1_200, 3_000, 6_000)
PERIOD = 6
READS = (0.025, 0.1)
BOUND, FREE = "anthropic/claude-fable-5-1", "anthropic/claude-opus-4-6"
SYSTEM = "You are a careful engineer. " * 40

# A block of a request: its text, or the name of a thought.
Block = tuple[str, bool]
Policy = Callable[[list[Any]], list[Any]]


def blocks(messages: Sequence[Any]) -> list[Block]:
    """Return the blocks of a request, each with whether it is a thought."""
    held: list[Block] = [(SYSTEM, False)]
    for message in messages:
        content = message["content"]
        texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in texts:
            is_thought = block["type"] == "thinking"
            text = block["signature"] if is_thought else message["role"] + json.dumps(block)
            held.append((text, is_thought))
    return held


def digest(held: Sequence[Block]) -> str:
    """Return a digest of the text of blocks, without thoughts."""
    texts = [text for text, is_thought in held if not is_thought]
    return blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


def valid(held: Sequence[Block]) -> list[Block]:
    """Return the blocks that the model reads: up to the first thought that is not valid, all
    thoughts; behind it, none."""
    read: list[Block] = []
    fails = False
    for text, is_thought in held:
        fails = fails or (is_thought and text.partition(".")[2] != digest(read))
        if not (is_thought and fails):
            read.append((text, is_thought))
    return read


def tokens(held: Sequence[Block]) -> int:
    """Return the tokens of blocks."""
    return sum([HIDDEN if is_thought else len(text) // 4 for text, is_thought in held])


def without_thoughts(messages: list[Any]) -> list[Any]:
    """Return messages without their thoughts."""
    return [
        {**m, "content": [b for b in m["content"] if b["type"] != "thinking"]}
        if isinstance(m["content"], list)
        else m
        for m in messages
    ]


def play(model: str, policy: Policy, steps: int, budget: int) -> tuple[float, dict[float, float]]:
    """Make a run; return how many thoughts were seen on average, and the cost by read price."""
    said: list[Any] = [{"role": "user", "content": "Why does the build fail?"}]
    state: dict[str, Any] = {}
    before: list[Block] = []
    seen, costs = 0, dict.fromkeys(READS, 0.0)
    for step in range(steps):
        fitted = fit(policy(said), budget, model=model, system=SYSTEM, previous=state)
        state = fitted.frontier
        read = valid(blocks(fitted.kept))
        seen += sum([is_thought for _, is_thought in read])
        same = 0
        while same < min(len(read), len(before)) and read[same] == before[same]:
            same += 1
        for price in READS:
            costs[price] += tokens(read[:same]) * price + tokens(read[same:])
        before = read
        thought = {"type": "thinking", "thinking": "", "signature": f"s{step}.{digest(read)}"}
        if step % PERIOD == PERIOD - 1:
            content: list[Any] = [thought, {"type": "text", "text": f"Part {step} is done."}]
            answer: Any = f"Go on with part {step + 1}."
        else:
            call = {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {"file": step}}
            content = [thought, call]
            size = SIZES[step * 7 % len(SIZES)]
            text = f"line of file {step}\n" * (size // 16)
            answer = [{"type": "tool_result", "tool_use_id": f"t{step}", "content": text}]
        said += [{"role": "assistant", "content": content}, {"role": "user", "content": answer}]
    return seen / steps, costs


POLICIES: dict[str, tuple[str, Policy]] = {
    "strip at moves": (BOUND, lambda said: said),
    "strip always": (FREE, without_thoughts),
    "drop block": (FREE, lambda said: said),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--budget", type=int, default=20_000)
    options = parser.parse_args()
    print(
        f"{'policy':16} {'seen':>6}" + "".join(f" {f'cost {price}':>12}" for price in READS),
        flush=True,
    )
    for name, (model, policy) in POLICIES.items():
        seen, costs = play(model, policy, options.steps, options.budget)
        row = "".join(f" {costs[price]:12,.0f}" for price in READS)
        print(f"{name:16} {seen:6.1f}{row}", flush=True)


if __name__ == "__main__":
    main()
