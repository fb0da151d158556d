"""The peers: each makes a policy for a budget; all count alike.

LangChain and LiteLLM see only the newest part of the history that can possibly fit: what they keep
is the same, and the run finishes. LiteLLM's counter is replaced by one that remembers, which gives
the same numbers. prompt-poet's versions cannot be installed beside the others'; its rule is
followed here, and `RealPoet` holds it against the package itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from bisect import bisect_left
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from muntin import Message
from muntin.simulator.replay import Moment, Policy, SentMessages
from muntin.simulator.run import Replay

HERE = Path(__file__).parent
POET = HERE.parents[1] / ".env-bench" / "prompt-poet" / "bin" / "python"


class Sizes:
    """The tokens of a session's messages, and of all before them."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.head = replay.head
        self.before = [0, *accumulate(map(replay.blocks.tokens, replay.trace.messages))]
        lasting = [
            *replay.trace.system,
            *replay.trace.messages,
            *filter(None, replay.trace.volatile),
        ]
        self._known = {id(message): replay.blocks.tokens(message) for message in lasting}

    def of(self, message: Message) -> int:
        """Count a message of the session, or one that was cut."""
        cached = self._known.get(id(message))
        return self.replay.blocks.tokens(message) if cached is None else cached

    def volatile(self, moment: Moment) -> int:
        """Count what was retrieved."""
        return self.of(moment.volatile) if moment.volatile else 0

    def newest(self, moment: Moment, tokens: int) -> int:
        """Return where the newest part begins that has at least so many tokens."""
        end = len(moment.past)
        return max(0, bisect_left(self.before, self.before[end] - tokens, 0, end) - 1)


Maker = Callable[[Sizes, int], Policy]


# LangChain.


def langchain(sizes: Sizes, budget: int, start_on: str | None = None) -> Policy:
    """Trim with LangChain: the last messages that fit, and the system's; it counts no tools."""
    lc = import_module("langchain_core.messages")
    results: dict[int, Any] = {}
    given: dict[str, Message] = {}
    known: dict[str, int] = {}

    def build(message: Message) -> Any:
        key = id(message)
        if key not in results:
            results[key] = _langchain(lc, message)
            results[key].id = str(len(results))
            given[results[key].id] = message
            known[results[key].id] = sizes.of(message)
        return results[key]

    def size(messages: Sequence[Any]) -> int:
        return sum([known[message.id] for message in messages])

    def trim(moment: Moment) -> SentMessages:
        messages = moment.messages(sizes.newest(moment, budget))
        trimmed = lc.trim_messages(
            [build(message) for message in messages],
            max_tokens=budget,
            token_counter=size,
            strategy="last",
            include_system=True,
            start_on=start_on,
        )
        return sent(moment, [given[each.id] for each in trimmed])

    return trim


def langchain_human(sizes: Sizes, budget: int) -> Policy:
    """Trim with LangChain to the last messages from a human one on, as its guides advise."""
    return langchain(sizes, budget, "human")


def _langchain(lc: Any, message: Message) -> Any:
    if message.role == "tool":
        return lc.ToolMessage(message.text, tool_call_id=message.tool_call_id)
    if message.role == "assistant":
        calls = [
            {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}
            for call in message.tool_calls
        ]
        return lc.AIMessage(message.text, tool_calls=calls)
    return {"system": lc.SystemMessage, "user": lc.HumanMessage}[message.role](message.text)


# LiteLLM.


class Known(dict[str, Any]):
    """A message for LiteLLM that remembers its size while nobody changes it."""

    size: int | None = None
    message: Message | None = None

    def __deepcopy__(self, memo: object) -> Known:
        copied = Known(self)
        copied.size, copied.message = self.size, self.message
        return copied

    def __setitem__(self, key: str, value: object) -> None:
        self.size = self.message = None
        super().__setitem__(key, value)


def litellm(sizes: Sizes, budget: int) -> Policy:
    """Trim with LiteLLM; it cuts the text of the oldest message so that the rest fits."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import downloads
    utils: Any = import_module("litellm.utils")
    blocks = sizes.replay.blocks
    results: dict[int, Known] = {}

    def build(message: Message) -> Known:
        key = id(message)
        if key not in results:
            results[key] = Known({**message.to_dict(), "content": message.text})  # None breaks it
            results[key].size, results[key].message = sizes.of(message), message
        return results[key]

    def size(messages: Sequence[Any]) -> int:
        try:
            return sum([message.size for message in messages])
        except (AttributeError, TypeError):  # one that LiteLLM made, or changed
            counts = [getattr(message, "size", None) for message in messages]
            return sum(
                blocks.counter.message(Message.from_dict(message)) if count is None else count
                for message, count in zip(messages, counts, strict=True)
            )

    utils.token_counter = lambda model="", messages=(), **_: size(messages)

    def trim(moment: Moment) -> SentMessages:
        given = [build(m) for m in moment.messages(sizes.newest(moment, budget))]
        trimmed = utils.trim_messages(given, "gpt-4o", trim_ratio=1, max_tokens=budget)
        messages = [getattr(m, "message", None) or Message.from_dict(m) for m in trimmed]
        return sent(moment, [m if m.role != "system" else moment.system[0] for m in messages])

    return trim


# prompt-poet.


def poet(sizes: Sizes, budget: int, step: int, *, in_front: bool = False) -> Policy:
    """Trim by prompt-poet's rule; it remembers nothing.

    What was retrieved stands last, where it spoils least; `in_front` has it before the
    conversation, as the template in prompt-poet's README has the examples that it fetches.
    """

    def trim(moment: Moment) -> SentMessages:
        messages = moment.messages(poet_start(sizes, moment, budget, step))
        if in_front and moment.volatile is not None:
            messages.insert(len(moment.system), messages.pop())
        return sent(moment, messages)

    return trim


def poet_start(sizes: Sizes, moment: Moment, budget: int, step: int) -> int:
    """Return the message with which prompt-poet's history begins."""
    return _answered(moment, poet_cut(sizes, moment, budget, step))


def poet_cut(sizes: Sizes, moment: Moment, budget: int, step: int) -> int:
    """Return where prompt-poet cuts: the oldest messages go until the excess, rounded
    up to a multiple of the step, is gone; the newest message stays.

    https://github.com/character-ai/prompt-poet, "cache-aware truncation".
    """
    end = len(moment.past)
    total = sizes.head + sizes.before[end] + sizes.volatile(moment)
    surplus = -(-max(0, total - budget) // step) * step
    return min(bisect_left(sizes.before, surplus), end - 1)


def _answered(moment: Moment, first: int) -> int:
    """It knows no tools; no provider takes a result without its call, so those go too."""
    while first < len(moment.past) - 1 and moment.past[first].role == "tool":
        first += 1
    return first


class RealPoet:
    """The package itself, in an environment of its own: see `poet.py`."""

    def __init__(self) -> None:
        if not POET.exists():
            raise ImportError("prompt-poet is not installed in .env-bench/prompt-poet")
        self._process = subprocess.Popen(
            [POET, HERE / "poet.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> RealPoet:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def open(self, sizes: Sizes) -> str:
        """Hand over a session; return the version of the package."""
        history = [after - before for before, after in pairwise(sizes.before)]
        return str(self._ask({"head": sizes.head, "history": history}))

    def cut(self, sizes: Sizes, moment: Moment, budget: int, step: int) -> int:
        """Return where the package cuts."""
        asked = {"end": len(moment.past), "volatile": sizes.volatile(moment)}
        return int(self._ask(asked | {"limit": budget, "step": step}))

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def sent(moment: Moment, messages: Sequence[Message]) -> SentMessages:
    """Name where each message comes from."""
    sources = [
        "retrieval"
        if message is moment.volatile
        else ("system" if message.role == "system" else "history")
        for message in messages
    ]
    return SentMessages(messages, sources)


def again(plans: Sequence[SentMessages]) -> Policy:
    """Return the policy that sends what was planned before."""
    following = iter(plans)
    return lambda _: next(following)
