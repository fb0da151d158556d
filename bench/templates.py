"""Prompts from templates, trimmed to a budget: Muntin beside prompt-poet.

    python bench/templates.py [--short] [--out FILE]

Three jobs, each done from the same data to a list of messages (or a text), in turns in one run,
with the same exact tokenizer; what is measured is processor time:

- a text of 20 parts is rendered from a template: Jinja2 and YAML there, Liquid here;
- such parts, of different priorities, are rendered and dropped until a budget is met: truncation
  priorities there, contexts here;
- a system text from a template, a history of messages and a question are fitted into 8,000 tokens.

prompt-poet renders, parses and tokenises all of it every time. It has no tools, so the history has
only texts. Without prompt-poet nothing is measured.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic import BaseModel

from bench.compose import Plain
from bench.conversations import TEXT, Dict, history
from bench.measure import Figure, in_turns, run
from muntin import Input, Message, Slots, context, prompt, prompt_file
from muntin.core.counting.exact import openai_tokenizer
from muntin.prompts.definition import Prompt

PARTS, DROPPED = 20, 8
BUDGET = 8_000
PEER = "prompt-poet"

# One part of a prompt, in both languages the same but for where data stand.
PART = f"## Rule {{number}}\nAlways greet {{name}} of {{shop}} politely. {TEXT}"
# A turn of a conversation, as prompt-poet's guide writes one.
CHAT = """
- name: system
  role: system
  content: |
    You are the agent of {{ shop }}. Be kind to {{ name }}.
{% for message in history %}
- name: message
  role: {{ message.role }}
  content: |
    {{ escape_special_characters(message.content) }}
  truncation_priority: 1
{% endfor %}
- name: question
  role: user
  content: |
    {{ escape_special_characters(question) }}
"""
SYSTEM = """<system>
You are the agent of {{ input.shop }}. Be kind to {{ input.name }}.
</system>

<user>{{ input.question }}</user>
"""


class Data(BaseModel):
    """What the templates are filled with."""

    shop: str = "Fenster & Co"
    name: str = "Ann"
    question: str = "Where is my lamp?"


def texts(number: int) -> list[Dict]:
    """Return a history of plain texts, as both can have it."""
    given = [message for message in history(2 * number, "recorded") if message["content"]]
    said = [message for message in given if message["role"] in ("user", "assistant")]
    return [{"role": message["role"], "content": message["content"]} for message in said[-number:]]


class Counts(Plain):
    """The exact tokenizer as a new object; like prompt-poet, it adds nothing for a message."""

    def __init__(self) -> None:
        super().__init__(openai_tokenizer("o200k_base"))
        self.message_overhead = 0


class Poet:
    """prompt-poet with a template that is loaded once."""

    def __init__(self, folder: Path, template: str) -> None:
        from prompt_poet import Prompt as PoetPrompt  # type: ignore[import-not-found]
        from template_loaders import LocalFSTemplateLoader  # type: ignore[import-not-found]

        logging.getLogger().setLevel(logging.ERROR)  # it warns of every part, every time
        path = folder / f"poet-{len(list(folder.iterdir()))}.yml.j2"
        path.write_text(template, encoding="utf-8")
        self._loader = LocalFSTemplateLoader(str(path))
        self._prompt = PoetPrompt
        exact = openai_tokenizer("o200k_base")
        # Only how many tokens there are matters to what it keeps.
        self._encode = lambda text: [0] * exact.count(text)

    def __call__(self, limit: int | None = None, **data: Any) -> list[Dict]:
        """Render the messages, within so many tokens."""
        made = self._prompt(
            template_data={**Data().model_dump(), **data},
            template_loader=self._loader,
            from_cache=True,
            encode_func=self._encode,
            token_limit=-1 if limit is None else limit,
            truncation_step=1,
        )
        if limit is not None:
            made.tokenize()
            made.truncate()
        messages: list[Dict] = made.messages
        return messages


def poet_parts(priorities: bool) -> str:
    """Write the parts as a template of prompt-poet."""
    parts = []
    for n in range(PARTS):
        text = PART.format(number=n, name="{{ name }}", shop="{{ shop }}").replace("\n", "\n    ")
        parts.append(f"- name: part {n}\n  role: system\n  content: |\n    {text}\n")
        if priorities:
            parts.append(f"  truncation_priority: {n * 7 % PARTS + 1}\n")
    return "".join(parts)


def many() -> Prompt:
    """Return the parts as contexts; the higher a truncation priority, the lower ours."""

    def part(n: int) -> Callable[[Data], str]:
        return lambda input: PART.format(number=n, name=input.name, shop=input.shop)

    used = [
        context(id=f"part {n}", input=Data, priority=50 - (n * 7 % PARTS + 1), system=part(n))
        for n in range(PARTS)
    ]
    return prompt(input=Data, use=used)


def race(
    work: str, rounds: int, poet: Callable[[], Any], **ours: Callable[[], Any]
) -> list[Figure]:
    """Run prompt-poet and Muntin's ways in turns."""
    print(f"{work} ...", file=sys.stderr)
    taken = in_turns({PEER: poet, **ours}, rounds, clock=process_time)
    theirs = taken.pop(PEER)
    return [
        Figure(
            work=f"{work}, {name.replace('_', ' ')}" if name != "ours" else work,
            peer=PEER,
            ours=each.seconds,
            theirs=theirs.seconds,
            note=f"kept: {theirs.result} and {each.result}",
        )
        for name, each in taken.items()
    ]


def rendering(folder: Path, rounds: int) -> Iterator[Figure]:
    """Compare rendering a text of parts, nothing trimmed."""
    poet = Poet(folder, poet_parts(priorities=False))
    path = folder / "parts.md"
    liquid = (
        PART.format(number=n, name="{{ input.name }}", shop="{{ input.shop }}")
        for n in range(PARTS)
    )
    path.write_text("<system>\n" + "\n\n".join(liquid) + "\n</system>\n", encoding="utf-8")
    file, data = prompt_file(path), Data().model_dump()
    assert poet()[3]["content"] in file.render(data).system
    yield from race(
        f"render a template of {PARTS} parts",
        rounds,
        lambda: len(poet()),
        ours=lambda: file.render(data).system.count("## Rule"),
    )


def dropping(folder: Path, rounds: int) -> Iterator[Figure]:
    """Compare dropping parts by priority until a budget is met."""
    poet, bot = Poet(folder, poet_parts(priorities=True)), many()
    exact = openai_tokenizer("o200k_base")
    total = sum(exact.count(message["content"]) for message in poet())
    budget, data, known = total * (PARTS - DROPPED) // PARTS + 40, Data().model_dump(), Counts()

    def resolve(tokenizer: Counts) -> int:
        made = bot.inspect_sync(data, tokenizer=tokenizer, token_budget=budget)
        return PARTS - len(made.dropped_contexts)

    resolve(known)
    yield from race(
        f"{PARTS} parts under a budget that drops {DROPPED}",
        rounds,
        lambda: len(poet(budget)),
        first_time=lambda: resolve(Counts()),
        again=lambda: resolve(known),
    )


def chatting(folder: Path, number: int, rounds: int) -> Iterator[Figure]:
    """Compare a system text, a history and a question, fitted into a budget."""
    poet = Poet(folder, CHAT)
    path = folder / "chat.md"
    path.write_text(SYSTEM, encoding="utf-8")
    file, given = prompt_file(path), texts(number)
    numbers, known = count(), Counts()

    def compose(said: list[Any], tokenizer: Counts) -> int:
        made = file.render(Data().model_dump())
        slots = Slots(BUDGET, tokenizer=tokenizer)
        slots.add("system", made.system, role="system", required=True)
        slots.add("history", said)
        slots.add("input", Input(made.user or ""))
        return len(slots.render().messages)

    built = [Message.from_dict(message) for message in given]

    def next_turn() -> int:
        new = Message.from_dict({"role": "assistant", "content": f"{next(numbers)}: {TEXT}"})
        return compose([*built, new], known)

    next_turn()
    yield from race(
        f"a template, {len(given):,} messages and a question into {BUDGET:,}",
        rounds,
        lambda: len(poet(BUDGET, history=given)),
        first_time=lambda: compose(given, Counts()),
        next_turn=next_turn,
    )


def measure(short: bool) -> Iterator[Figure]:
    """Measure beside prompt-poet, where it is installed."""
    if not find_spec("prompt_poet"):
        return
    with tempfile.TemporaryDirectory() as name:
        folder, rounds = Path(name), 3 if short else 15
        yield from rendering(folder, rounds)
        yield from dropping(folder, rounds)
        for number in (10, 100, 1_000) if short else (10, 100, 1_000, 10_000):
            yield from chatting(folder, number, rounds)


if __name__ == "__main__":
    run(__doc__, measure)
