"""What trimming costs when the provider caches: Muntin beside LangChain, LiteLLM and prompt-poet.

Long sessions are replayed against the cache model, for the rules of Anthropic and of OpenAI. Every
policy gets the budget at which it retains as much history as `Stepped()` does, on average, within
1 %. `python bench/caching.py [--short] [--json FILE]` prints a table and what of the acceptance
lines holds. Peers that are not installed are left out.

LangChain and LiteLLM see only the newest part of the history that can possibly fit: what they keep
is the same, and the run finishes. LiteLLM's counter is replaced by one that remembers, which gives
the same numbers. prompt-poet pins versions that cannot be installed beside the others; its rule
(https://github.com/character-ai/prompt-poet, "cache-aware truncation") is followed here: when the
whole prompt has more tokens than the limit, the oldest messages go until the excess, rounded up to
a multiple of the step, is gone. It knows no tools: results that lost their call go too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import import_module
from itertools import accumulate, count, pairwise
from pathlib import Path
from time import process_time
from typing import Any

from muntin import Message, Profile, assistant, system, tool, user
from muntin.core.caching import Caching
from muntin.core.exact import openai_tokenizer
from muntin.core.frontier import Frontier
from muntin.core.parts import ToolCall
from muntin.core.slot import Exact, Stepped, Trimming
from muntin.core.slots import Slots
from muntin.core.tokens import Counter
from muntin.core.window import Window
from muntin.simulator.replay import Moment, Policy, Sent, trace_of
from muntin.simulator.run import Replay

HERE = Path(__file__).parent
TRACES = HERE.parent / "tests" / "data" / "airline-traces.jsonl"
BUDGET = 32_000
CLOSE = 0.01
TRIES = 8
# prompt-poet's default step, and wider ones; its best is what counts.
STEPS = (1_000, 4_000, 8_000, 16_000)
MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-5")
TOKENIZER = openai_tokenizer("o200k_base")


# The sessions.


@cache
def _traces() -> list[list[dict[str, Any]]]:
    lines = TRACES.read_text("utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


def recorded(turns: int) -> list[Message]:
    """Return recorded conversations, one after another, no text twice, with so many turns."""
    messages = [Message.from_dict(_traces()[0][0])]
    opened = 0
    for number in count():
        for given in _traces()[number % len(_traces())][1:]:
            message = {**given, "content": f"{given['content']} ({number})"}
            opened += given["role"] == "user" and messages[-1].role != "user"
            if opened > turns:
                return messages
            messages.append(Message.from_dict(message))
    raise AssertionError


def agent(turns: int, tokens: int = 1_500) -> list[Message]:
    """Return an agent's session: a request, three tool calls and an answer, `tokens` a turn."""
    words = "\n".join(m["content"] or "" for trace in _traces() for m in trace[1:]).split()
    chance = random.Random(7)

    def text(size: float) -> str:
        start = chance.randrange(len(words) - 2 * int(size))
        taken = words[start : start + int(size)]
        while TOKENIZER.count(" ".join(taken)) > size:
            taken = taken[: len(taken) * 49 // 50]
        return " ".join(taken)

    messages = [system(text(1_200))]
    for turn in range(turns):
        messages.append(user(f"{turn}: {text(60)}"))
        share = (tokens - 250) / 3
        for number in range(3):
            call = ToolCall(f"{turn}.{number}", "search", json.dumps({"query": text(24)}))
            messages.append(assistant(tool_calls=[call]))
            messages.append(tool(call.id, text(share * chance.uniform(0.5, 1.5))))
        messages.append(assistant(text(100)))
    return messages


def schemas(number: int = 20) -> tuple[dict[str, Any], ...]:
    """Return the schemas of an agent's tools."""
    fields = ("name of the person", "date of the flight", "number of the booking", "class of seat")
    about = "The {} that is meant, as the user wrote it."
    properties = {
        field.replace(" ", "_"): {"type": "string", "description": about.format(field)}
        for field in fields
    }
    described = "Look something up in the records and return what was found, newest first."
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    return tuple(
        {
            "type": "function",
            "function": {"name": f"look_{n}", "description": described, "parameters": parameters},
        }
        for n in range(number)
    )


def retrieved(turns: int, room: int = BUDGET) -> list[str]:
    """Return a text a turn, of random size up to a quarter of the room."""
    words = "\n".join(m["content"] or "" for trace in _traces() for m in trace[1:]).split()
    sizes = [TOKENIZER.count(f" {word}") for word in words]
    chance = random.Random(11)
    texts = []
    for turn in range(turns):
        start, left = chance.randrange(len(words)), chance.uniform(0, 0.25 * room) - 30
        taken = [f"({turn})"]
        while left > 0:
            taken.append(words[start % len(words)])
            left -= sizes[start % len(words)]
            start += 1
        texts.append(" ".join(taken))
    return texts


@dataclass(frozen=True)
class Session:
    """A session to replay: its messages, and how requests are made of it.

    Without `peers`, only prompt-poet and the optimum are measured beside Muntin.
    """

    name: str
    messages: list[Message]
    steps: bool = False
    volatile: tuple[str, ...] = ()
    pause: float = 30
    tools: tuple[dict[str, Any], ...] = ()
    peers: bool = True

    def replay(self, model: str) -> Replay:
        """Return the session, made ready for the rules of a model."""
        profile = Profile.for_model(model)
        assert profile.caching is not None
        assert profile.caching.read == 0.1
        return Replay(
            trace_of(self.messages, self.volatile),
            BUDGET,
            profile=profile,
            rules=profile.caching,
            tokenizer=TOKENIZER,
            steps=self.steps,
            pause=self.pause,
            tools=self.tools,
        )


def sessions(turns: int) -> list[Session]:
    """Return all sessions of so many turns.

    What the outcome hangs on is varied: how many tools the agent has (their schemas are cached, so
    more of them raise the share that is read), and how long users take between two turns.
    """
    chat, tools = recorded(turns), agent(turns)
    texts = tuple(retrieved(turns))
    fewer = tuple(retrieved(turns, BUDGET - Counter(TOKENIZER).tools(schemas())))
    return [
        Session("recorded", chat),
        Session("recorded, steps", chat, steps=True),
        Session("agent", tools, tools=schemas()),
        Session("agent, no tools", tools, peers=False),
        Session("agent, steps", tools, steps=True, tools=schemas()),
        Session("recorded, retrieval, 4 min", chat, volatile=texts, pause=240),
        Session("recorded, retrieval, 2 min", chat, volatile=texts, pause=120, peers=False),
        Session("recorded, retrieval, 30 s", chat, volatile=texts, peers=False),
        Session("agent, retrieval, 30 s", tools, volatile=fewer, tools=schemas()),
    ]


# The peers. Each makes a policy for a budget; all count alike.


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
        known = self._known.get(id(message))
        return self.replay.blocks.tokens(message) if known is None else known

    def volatile(self, moment: Moment) -> int:
        return self.of(moment.volatile) if moment.volatile else 0

    def newest(self, moment: Moment, tokens: int) -> int:
        """Return where the newest part begins that has at least so many tokens."""
        end = len(moment.said)
        return max(0, bisect_left(self.before, self.before[end] - tokens, 0, end) - 1)


Maker = Callable[[Sizes, int], Policy]


def langchain(sizes: Sizes, budget: int, start_on: str | None = None) -> Policy:
    """Trim with LangChain: the last messages that fit, and the system's; it counts no tools."""
    lc = import_module("langchain_core.messages")
    made: dict[int, Any] = {}
    given: dict[str, Message] = {}
    known: dict[str, int] = {}

    def build(message: Message) -> Any:
        key = id(message)
        if key not in made:
            made[key] = _langchain(lc, message)
            made[key].id = str(len(made))
            given[made[key].id] = message
            known[made[key].id] = sizes.of(message)
        return made[key]

    def size(messages: Sequence[Any]) -> int:
        return sum([known[each.id] for each in messages])

    def trim(moment: Moment) -> Sent:
        messages = moment.messages(sizes.newest(moment, budget))
        kept = lc.trim_messages(
            [build(message) for message in messages],
            max_tokens=budget,
            token_counter=size,
            strategy="last",
            include_system=True,
            start_on=start_on,
        )
        return sent(moment, [given[each.id] for each in kept])

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
    made: dict[int, Known] = {}

    def build(message: Message) -> Known:
        key = id(message)
        if key not in made:
            made[key] = Known({**message.to_dict(), "content": message.text})  # None breaks it
            made[key].size, made[key].message = sizes.of(message), message
        return made[key]

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

    def trim(moment: Moment) -> Sent:
        given = [build(m) for m in moment.messages(sizes.newest(moment, budget))]
        kept = utils.trim_messages(given, "gpt-4o", trim_ratio=1, max_tokens=budget)
        messages = [getattr(m, "message", None) or Message.from_dict(m) for m in kept]
        return sent(moment, [m if m.role != "system" else moment.system[0] for m in messages])

    return trim


def poet(sizes: Sizes, budget: int, step: int) -> Policy:
    """Trim by prompt-poet's rule; it remembers nothing."""
    return lambda moment: sent(moment, moment.messages(poet_start(sizes, moment, budget, step)))


def poet_start(sizes: Sizes, moment: Moment, budget: int, step: int) -> int:
    """Return the message with which prompt-poet's history begins."""
    end = len(moment.said)
    total = sizes.head + sizes.before[end] + sizes.volatile(moment)
    surplus = -(-max(0, total - budget) // step) * step
    first = min(bisect_left(sizes.before, surplus), end - 1)
    while first < end - 1 and moment.said[first].role == "tool":
        first += 1
    return first


def sent(moment: Moment, messages: Sequence[Message]) -> Sent:
    """Name where each message comes from."""
    sources = [
        "retrieval" if each is moment.volatile else "system" if each.role == "system" else "history"
        for each in messages
    ]
    return Sent(messages, sources)


def again(plans: Sequence[Sent]) -> Policy:
    """Return the policy that sends what was planned before."""
    following = iter(plans)
    return lambda _: next(following)


# Equal retention.


@dataclass(frozen=True)
class Plans:
    """What a policy sends with some budget, and the tokens of history it retains on average."""

    budget: int
    sent: list[Sent]
    retained: float


class Contest:
    """One session, planned once, and priced by the rules of each provider."""

    def __init__(self, session: Session) -> None:
        self.replays = {model: session.replay(model) for model in MODELS}
        self.replay = self.replays[MODELS[0]]
        self.sizes = Sizes(self.replay)
        self._plans: dict[str, Plans | None] = {}

    def peers(self, target: float) -> Iterator[tuple[str, Plans]]:
        """Yield who slides, with the budget at which he retains as much."""
        makers: dict[str, Maker] = {
            "muntin Exact()": lambda _, budget: self.replay.policy(Exact(), budget),
            "langchain": langchain,
            "langchain, human first": langchain_human,
            "litellm": litellm,
        }
        for name, make in makers.items():
            known = self._plans.get(name)
            if known is None or abs(known.retained - target) > CLOSE * target:
                try:
                    known = self._plans[name] = self._search(make, target)
                except ImportError as error:
                    print(f"left out: {error}", file=sys.stderr)
            if known is not None:
                yield name, known

    def _search(self, make: Maker, target: float) -> Plans | None:
        """Try budgets until the difference is a tenth of what is allowed, or they are used up."""
        best: Plans | None = None
        low, high = 0, BUDGET + 1
        budget = min(BUDGET, int(target + self.replay.head))
        for _ in range(TRIES):
            if not low < budget < high:
                break
            policy = make(self.sizes, budget)
            plans = [policy(moment) for moment in self.replay.moments]
            found = Plans(budget, plans, self._retained(plans))
            over = found.retained - target
            if best is None or abs(over) < abs(best.retained - target):
                best = found
            if abs(over) <= CLOSE / 10 * target:
                break
            low, high = (budget, high) if over < 0 else (low, budget)
            guess = budget - round(over)
            budget = guess if low < guess < high else (low + high) // 2
        return best if best and abs(best.retained - target) <= CLOSE * target else None

    def _retained(self, plans: Sequence[Sent]) -> float:
        tokens = self.sizes.of
        kept = [
            tokens(message)
            for plan in plans
            for message, source in zip(plan.messages, plan.sources, strict=True)
            if source == "history"
        ]
        return sum(kept) / len(plans)

    def poets(self, target: float) -> Iterator[tuple[str, Plans]]:
        """Yield prompt-poet's plans with its default step, wider ones, and the widest there is: the
        one that retains as much with the whole budget, and cuts most rarely."""
        widest = bisect_left(
            range(1, 2 * BUDGET), -target, key=lambda step: -self._by_poet(BUDGET, step)
        )
        for step in sorted({*STEPS, widest}):
            by_budget = partial(self._by_poet, step=step)
            budget = bisect_left(range(BUDGET + 1), target, key=by_budget)
            if budget <= BUDGET:
                policy = poet(self.sizes, budget, step)
                plans = [policy(moment) for moment in self.replay.moments]
                yield f"prompt-poet, step {step:,}", Plans(budget, plans, by_budget(budget))

    def _by_poet(self, budget: int, step: int) -> float:
        """Return what prompt-poet retains, on average."""
        before, moments = self.sizes.before, self.replay.moments
        starts = [poet_start(self.sizes, moment, budget, step) for moment in moments]
        kept = [before[len(m.said)] - before[n] for m, n in zip(moments, starts, strict=True)]
        return sum(kept) / len(kept)


@dataclass(frozen=True)
class Row:
    """One policy on one session; `ratio` is its cost over that of Stepped()."""

    session: str
    model: str
    policy: str
    budget: int
    read_share: float
    retained: float
    cost: float
    ratio: float


def measure(session: Session) -> Iterator[Row]:
    """Run everybody with equal retention."""
    contest = Contest(session)
    for model, replay in contest.replays.items():
        own = replay.run("muntin Stepped()", replay.policy(Stepped()))

        def row(policy: str, budget: int, retained: float, cost: float, read: float = 0) -> Row:
            ratio = cost / own.cost  # noqa: B023
            return Row(session.name, model, policy, budget, read, retained, cost, ratio)  # noqa: B023

        yield row(own.policy, BUDGET, own.retained, own.cost, own.read_share)
        for name, plans in contest.peers(own.retained) if session.peers else ():
            run = replay.run(name, again(plans.sent))
            yield row(name, plans.budget, run.retained, run.cost, run.read_share)
        poets = [
            (plans.budget, replay.run(name, again(plans.sent)))
            for name, plans in contest.poets(own.retained)
        ]
        budget, run = min(poets, key=lambda each: each[1].cost)
        yield row(run.policy, budget, run.retained, run.cost, run.read_share)
        for name, lend in (("optimum", False), ("optimum, all room lent", True)):
            if not lend or session.volatile:
                best = replay.optimum(own.retained, lend=lend)
                yield row(name, BUDGET, best.retained, best.cost)


# Restarts, the frontier, and the time of planning.


def windows(session: Session, trimming: Trimming, *, restart: bool = False) -> Iterator[Window]:
    """Compose the windows of a session; with `restart`, only what is stored comes along."""
    previous: Window | Frontier | None = None
    for moment in session.replay(MODELS[0]).moments:
        slots = Slots(
            BUDGET, tokenizer=TOKENIZER, profile=MODELS[0], trimming=trimming, previous=previous
        )
        slots.add("system", moment.system, tier="pinned")
        slots.add("history", moment.said)
        if moment.volatile is not None:
            slots.add("retrieval", moment.volatile.text, max_ratio=0.25)
        window = slots.render()
        yield window
        previous = window
        if restart:
            previous = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))


def restarts(session: Session) -> int:
    """Return how many windows differ when the process is restarted between any two turns."""
    pairs = zip(windows(session, Stepped()), windows(session, Stepped(), restart=True), strict=True)
    return sum((a.messages, a.breakpoints) != (b.messages, b.breakpoints) for a, b in pairs)


def backward(session: Session) -> int:
    """Return how often a history began before where it had begun."""
    firsts = [w.frontier.starts[0].first for w in windows(session, Stepped())]
    return sum(after < before for before, after in pairwise(firsts))


def planning(session: Session, repeats: int) -> float:
    """Return the time of planning with caching on, over that of planning without."""
    seconds: dict[Trimming, list[float]] = {Exact(): [], Stepped(): []}
    for _ in range(repeats):
        for trimming, times in seconds.items():
            start = process_time()
            for _ in windows(session, trimming):
                pass
            times.append(process_time() - start)
    return min(seconds[Stepped()]) / min(seconds[Exact()])


# What is asked, and how it is told.


@dataclass(frozen=True)
class Line:
    """One acceptance line."""

    text: str
    value: float
    holds: bool


# What must be read from the cache, at least.
READS = {"recorded": 0.96, "agent": 0.88, "agent, no tools": 0.88, "agent, steps": 0.95}


def acceptance(rows: Sequence[Row]) -> Iterator[Line]:
    """Hold the measurements against what is asked, in every variant that was measured."""
    for row in rows:
        who = f"{row.model.partition('/')[0]}: {row.session}"
        volatile = "retrieval" in row.session
        saved = 1 / row.ratio
        if row.policy == "muntin Stepped()" and row.session in READS:
            share = READS[row.session]
            yield Line(f"{who}: at least {share:.0%} read", row.read_share, row.read_share >= share)
        elif row.policy.startswith("langchain") and not volatile:
            yield Line(f"{who}: at most 1/3 of {row.policy}", saved, saved <= 1 / 3)
        elif row.policy.startswith("prompt-poet"):
            most = 0.8 if volatile else 1.0
            yield Line(f"{who}: at most {most} of prompt-poet's best", saved, saved <= most)
        elif row.policy.startswith("optimum"):
            yield Line(f"{who}: within 5 % of the {row.policy}", saved, saved <= 1.05)


def show(rows: Sequence[Row], lines: Sequence[Line]) -> str:
    """Write tables for a person."""
    table = [("session", "rules", "policy", "budget", "read", "retained", "cost", "ratio")]
    table += [
        (
            row.session,
            row.model.partition("/")[0],
            row.policy,
            f"{row.budget:,}",
            f"{row.read_share:.1%}" if row.read_share else "-",
            f"{row.retained:,.0f}",
            f"{row.cost:,.0f}",
            f"{row.ratio:.3f}",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    out.append("")
    out += [f"{'pass' if x.holds else 'FAIL'}  {x.text}: {x.value:,.3f}" for x in lines]
    return "\n".join(out)


def main() -> None:
    """Measure, print, and write the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer turns")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "caching.json")
    options = parser.parse_args()
    turns = 200 if options.short else 1_000
    rows = [row for session in sessions(turns) for row in measure(session)]
    lines = list(acceptance(rows))
    volatile = Session("", recorded(400), volatile=tuple(retrieved(400)))
    moved = backward(volatile)
    changed = restarts(volatile)
    time = planning(Session("", recorded(200)), 3)
    lines += [
        Line("400 turns with retrieval: the frontier never moves back", moved, not moved),
        Line("400 turns with retrieval: restarts change no window", changed, not changed),
        Line("planning with caching at most 1.5 times without", time, time <= 1.5),
    ]
    print(show(rows, lines))
    record = {
        "turns": turns,
        "budget": BUDGET,
        "rules": {model: asdict(rules_of(model)) for model in MODELS},
        "rows": [asdict(row) for row in rows],
        "acceptance": [asdict(line) for line in lines],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def rules_of(model: str) -> Caching:
    """Return the caching rules of a model."""
    rules = Profile.for_model(model).caching
    assert rules is not None
    return rules


if __name__ == "__main__":
    main()
