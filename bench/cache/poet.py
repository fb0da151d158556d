"""The real prompt-poet, asked where it cuts: run by the environment it is installed in.

    .env-bench/prompt-poet/bin/python bench/cache/poet.py

One JSON object a line comes in and goes out. `{"head": 1200, "history": [80, 300, …]}` opens a
session, in tokens: what is always sent, and the messages; the answer is the package's version.
`{"end": 40, "volatile": 900, "limit": 32000, "step": 4000}` asks for the request that is made when
so many messages were said; the answer is where the history begins. The template is that of
prompt-poet's README: messages are truncatable, all else is not, and so is the newest message. Sizes
are handed to it, so that it counts as everybody else does.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from prompt_poet import Prompt, TruncationError  # type: ignore[import-not-found]

TEMPLATE = """
- name: system instructions
  role: system
  content: head
{% for number in history %}
- name: chat_message
  role: user
  truncation_priority: 1
  content: "{{ number }}"
{% endfor %}
- name: user query
  role: user
  content: "{{ newest }}"
{% if volatile %}
- name: retrieval
  role: user
  content: volatile
{% endif %}
"""


class Tokens(list[int]):
    """Tokens that nobody changes: prompt-poet copies them again and again."""

    def __deepcopy__(self, memo: object) -> Tokens:
        return self


class Session:
    """The sizes of one session, and the prompt that was asked for last."""

    def __init__(self, head: int, history: list[int]) -> None:
        self._sizes = {"head": head} | {str(n): size for n, size in enumerate(history)}
        self.prompt = lru_cache(maxsize=1)(self._prompt)

    def _prompt(self, end: int, volatile: int) -> Any:
        sizes = self._sizes | {"volatile": volatile}
        data = {"history": range(end - 1), "newest": end - 1, "volatile": volatile}
        prompt = Prompt(
            template_data=data,
            raw_template=TEMPLATE,
            encode_func=lambda content: Tokens([0] * sizes[content]),
        )
        prompt.tokenize()
        return prompt

    def first(self, end: int, volatile: int, limit: int, step: int) -> int:
        """Return the first message that prompt-poet keeps; the newest, if it fails."""
        prompt = self.prompt(end, volatile)
        try:
            prompt.truncate(token_limit=limit, truncation_step=step)
        except TruncationError:
            return end - 1
        return min(int(part.content) for part in prompt.parts if part.content.isdigit())


def main() -> None:
    """Answer until nobody asks any more."""
    logging.disable(logging.CRITICAL)
    session = Session(0, [])
    for line in sys.stdin:
        data = json.loads(line)
        if "history" in data:
            session = Session(**data)
            answer: Any = version("prompt-poet")
        else:
            answer = session.first(**data)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
