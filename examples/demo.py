"""Compose a real agent conversation into a small window, and show where every token went."""

import json
import shutil
import sys
from pathlib import Path

from muntin import Budget, Input, Slots
from muntin.show import bar

TRACE = Path(__file__).parent / "data" / "airline.json"
GUIDE = "Write short sentences. Offer at most three options at a time. " * 12
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_reservation_details",
            "description": "Get the details of a reservation.",
            "parameters": {
                "type": "object",
                "properties": {"reservation_id": {"type": "string"}},
                "required": ["reservation_id"],
            },
        },
    }
]


def main() -> None:
    """Plan the last turn of the conversation at 2 500 tokens."""
    messages = json.loads(TRACE.read_text(encoding="utf-8"))["messages"]
    policy, history, question = messages[0], messages[1:-5], messages[-5]

    slots = Slots(Budget(2_500), tokenizer="openai/gpt-4o", tools=TOOLS)
    slots.add("system", policy["content"], priority=100)
    slots.add("style guide", GUIDE, role="system", priority=-1)
    slots.add("history", history, max_ratio=0.6)
    slots.add("input", Input(question["content"]))
    window = slots.render()

    colour = sys.stdout.isatty()
    width = min(100, shutil.get_terminal_size().columns)
    print(f"{len(messages)} messages of a real airline agent, into a window of 2,500 tokens:\n")
    print(bar(window, width=width, colour=colour))
    print(f"\n{window.report}\n")
    print("What was left out, first to last:\n")
    cuts = [
        (d.rank, slot.name, d) for slot in window.report.slots for d in slot.decisions if d.rank
    ]
    for _, name, cut in sorted(cuts, key=lambda cut: cut[0]):
        what = f"message {cut.first}" + f" and {cut.count - 1} more" * (cut.count > 1)
        lost = cut.tokens_asked - cut.tokens_kept
        print(f"  {name:12} {what:22} {cut.status:8} {cut.reason:12} -{lost:,} tokens")
    print("\nThe same window as an OpenAI request:\n")
    for line in json.dumps(window.openai(), indent=1, ensure_ascii=False).splitlines():
        print(line if len(line) <= width else line[: width - 1] + "…")


if __name__ == "__main__":
    main()
