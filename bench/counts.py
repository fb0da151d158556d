"""Expected and reported inputs of a run of 200 steps, with a provider that counts otherwise.

    python -m bench.counts

The provider adds 520 tokens, counts 1.22 tokens for one, and reads 150 to 900 tokens of hidden
reasoning of each answer again.
"""

from __future__ import annotations

import random
from statistics import median

from muntin import Slots
from muntin.core.counting.book import CountBook
from muntin.core.counting.counter import Counter
from muntin.core.message import Message, answered, tool, user
from muntin.core.parts import Reasoning, ToolCall
from muntin.core.profile import Profile
from muntin.core.report import Reported
from muntin.core.usage import AnswerTokens
from muntin.core.window import Window

MODEL, BUDGET, STEPS = "anthropic/claude-opus-4-6", 20_000, 200
LOOK = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


def run(*, learns: bool, seed: int = 7) -> tuple[int, int, float]:
    """Return how many requests are over budget, the largest, and the median error."""
    randomly, plain, book = random.Random(seed), Counter("estimate"), CountBook()
    hidden: dict[str, int] = {}
    question, steps = user("Look at every ship."), list[Message]()
    previous: Window | None = None
    sizes, errors = list[int](), list[int]()
    counter = Counter.of(Profile.for_model(MODEL))
    for number in range(STEPS):
        law = book.law(MODEL, counter.law) if learns else counter.law
        slots = Slots(
            BUDGET, profile=MODEL, tools=[LOOK], previous=previous, counter=counter.with_law(law)
        )
        slots.add("input", [question])
        slots.add("run", steps, run=True, ladder=True)
        window = slots.render()
        thoughts = [m.tool_calls[0].id for m in window.messages if m.tool_calls]
        ours = sum(map(plain.plain, window.messages)) + plain.tools(window.tools)
        reported = round(520 + 1.22 * ours) + sum(hidden[name] for name in thoughts)
        sizes.append(reported)
        errors.append(abs(reported - window.tokens))
        if learns and (counted := window.counted) is not None:
            book.enter(MODEL, counted, reported)
            window.enter_reported(Reported(reported))
        previous = window
        name = f"c{number}"
        hidden[name] = randomly.randint(150, 900)
        call = ToolCall(name, "look", '{"at":"the harbour"}')
        answer = Message("assistant", (Reasoning("", signature="s"),), tool_calls=(call,))
        if learns:
            visible = round(1.22 * plain.plain(answer))
            answer = answered(answer, AnswerTokens(visible + hidden[name], hidden[name], True))
        steps += [answer, tool(name, " ".join(["harbour"] * randomly.randint(20, 400)))]
    return sum(size > BUDGET for size in sizes), max(sizes), median(errors[2:])


def main() -> None:
    """Print both runs."""
    for name, learns in (("counted alone", False), ("by the last report", True)):
        over, largest, error = run(learns=learns)
        print(f"{name:20} over budget {over:3} of {STEPS}  largest {largest:7,}  error {error:g}")


if __name__ == "__main__":
    main()
