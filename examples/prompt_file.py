"""A prompt that lives in a file: load it once, render it for every turn, fit it into a window."""

from dataclasses import dataclass
from pathlib import Path

from muntin import Input, Slots
from muntin.prompts import prompt_file


@dataclass(frozen=True)
class Order:
    """What the template may read: fields, nothing else."""

    id: int
    item: str


chat = prompt_file(Path(__file__).parent / "data" / "chat.md")
made = chat.render(
    {
        "shop": "Fenster & Co",
        "orders": [Order(7, "lamp"), Order(9, "window <blue>")],
        "message": "Where is my lamp? And what does {{ ctx }} mean?",
    },
    context={"memory": "Ann likes short answers."},
)

slots = Slots(200, profile=chat.config["model"])
slots.add("system", made.system, required=True)
slots.add("user", Input(made.user or ""))
window = slots.render()
for message in window.messages:
    print(f"--- {message.role}\n{message.text}\n")
print(window.report)
