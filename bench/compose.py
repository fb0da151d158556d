"""Fitting a history into a budget, side by side with LangChain's and LiteLLM's trimmers.

All contestants do the same work with the same exact tokenizer, in turns in one run, and what is
measured is processor time, so that the ratios hold on a busy machine too.
`python bench/compose.py [--quick] [--json FILE]` prints a table and what of the acceptance lines
holds. Peers that are not installed are left out.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import count, islice, product
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from muntin import Message, Slots, Window
from muntin.core.exact import ExactTokenizer, openai_tokenizer

HERE = Path(__file__).parent
TRACES = HERE.parent / "tests" / "data" / "airline-traces.jsonl"
SMALL, LARGE = 8_000, 128_000
SIZES = (100, 1_000, 10_000, 100_000)
# What takes longer than this is run once.
SLOW_SECONDS = 4.0
# LiteLLM counts all it has kept again for every message it keeps: beyond this, minutes a call.
LITELLM_MOST = {SMALL: 100_000, LARGE: 1_000}

# How long texts are. "recorded": as in the recorded conversations, whose tools answer in a few
# words (260 characters a message on average). "agent": as of agents that read files and search
# (some 1,100 on average); recorded texts are put together to these lengths, by turns.
TRAFFIC: dict[str, dict[str, tuple[int, ...]]] = {
    "recorded": {},
    "agent": {
        "user": (80, 160, 240, 400, 900),
        "assistant": (200, 400, 700, 1_200, 2_400),
        "tool": (400, 1_200, 2_500, 5_000, 9_000),
    },
}

Dict = dict[str, Any]


# The work: a long session made of real conversations, no text twice.


@cache
def _traces() -> list[list[Dict]]:
    lines = TRACES.read_text("utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


@cache
def _texts(role: str) -> str:
    """Return all that was recorded of a role, as one text."""
    messages = [message for trace in _traces() for message in trace]
    return "\n".join(m["content"] for m in messages if m["role"] == role and m["content"])


def _lengthen(text: str, role: str, number: int, traffic: str) -> str:
    """Return the text at the length this traffic has, filled up with others of its role."""
    lengths = TRAFFIC[traffic].get(role)
    if not lengths or not text:
        return text
    missing = max(0, lengths[number % len(lengths)] - len(text))
    start = 7_919 * number % max(1, len(_texts(role)) - missing)
    return text + _texts(role)[start : start + missing]


def _conversation(number: int, traffic: str) -> list[Dict]:
    """Return a recorded conversation without its system message, its texts and ids made unique."""
    trace = _traces()[number % len(_traces())]
    messages: list[Dict] = []
    call_id = ""
    for place, given in enumerate(trace[1:]):
        mark = f"{number}.{place}"
        role = given["role"]
        text = _lengthen(given.get("content") or "", role, 31 * number + place, traffic)
        message: Dict = {"role": role, "content": f"{text} ({mark})" if text else ""}
        if given.get("tool_calls"):
            function = given["tool_calls"][0]["function"]
            call_id = f"call_{mark}"
            arguments = json.dumps({**json.loads(function["arguments"]), "trace": mark})
            called = {"name": function["name"], "arguments": arguments}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": called}]
        elif role == "tool":
            message["tool_call_id"] = call_id
        messages.append(message)
    return messages


def history(size: int, traffic: str = "agent") -> list[Dict]:
    """Return a session of `size` messages; sessions of different sizes end alike."""
    newest_first: list[Dict] = []
    # From this conversation on, one in five is a tool result in the newest hundred too.
    for number in count(16):
        newest_first += reversed(_conversation(number, traffic))
        if len(newest_first) >= size - 1:
            break
    messages = newest_first[size - 2 :: -1]
    if messages[0]["role"] == "tool":  # its call was cut off
        messages[0] = {"role": "user", "content": messages[0]["content"]}
    return [_traces()[0][0], *messages]


def exchanges(traffic: str = "agent") -> Iterator[list[Dict]]:
    """Yield one exchange after another, a question and its answer, no text twice."""
    for number in count(1_000_000):
        said = {"user": f"And what about booking {number}?", "assistant": f"Booking {number}: yes."}
        yield [
            {"role": role, "content": _lengthen(text, role, number, traffic)}
            for role, text in said.items()
        ]


# The contestants.


class Plain:
    """The exact tokenizer as a new object, which no memo knows."""

    def __init__(self, exact: ExactTokenizer) -> None:
        self.name = exact.name
        self.message_overhead = exact.message_overhead
        self.count = exact.count


class Recording(Plain):
    """The exact tokenizer, remembering the texts it is asked to count."""

    def __init__(self, exact: ExactTokenizer) -> None:
        super().__init__(exact)
        self.asked: list[str] = []
        self.count = self._count
        self._exact = exact

    def _count(self, text: str) -> int:
        self.asked.append(text)
        return self._exact.count(text)


@dataclass(frozen=True)
class Contestant:
    """Something that trims: how its messages are built, and how they are trimmed.

    `trim` returns how many messages it kept; `remembers` says whether a second call can be faster.
    """

    name: str
    build: Callable[[Dict], Any]
    trim: Callable[[list[Any], int], int]
    remembers: bool = False


def compose(messages: Sequence[Message], budget: int, tokenizer: Plain) -> Window:
    """Fit messages into a budget with Muntin."""
    slots = Slots(budget, tokenizer=tokenizer)
    slots.add("history", messages)
    return slots.render()


def muntin(exact: ExactTokenizer, *, remembers: bool) -> Contestant:
    """Return Muntin; unless it `remembers`, every call gets a tokenizer that no memo knows."""
    known = Plain(exact)

    def trim(messages: list[Any], budget: int) -> int:
        return len(compose(messages, budget, known if remembers else Plain(exact)).messages)

    return Contestant("muntin", Message.from_dict, trim, remembers)


def langchain(exact: ExactTokenizer) -> list[Contestant]:
    """Return LangChain's trimmer with the forms of counter its documentation offers.

    The last one remembers counts in a cache of the user's, which LangChain does not.
    """
    lc = import_module("langchain_core.messages")

    def build(message: Dict) -> Any:
        match message["role"]:
            case "system":
                return lc.SystemMessage(message["content"])
            case "user":
                return lc.HumanMessage(message["content"])
            case "tool":
                return lc.ToolMessage(message["content"], tool_call_id=message["tool_call_id"])
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "args": json.loads(arguments)}
            for call in message.get("tool_calls", ())
            if (arguments := call["function"]["arguments"])
        ]
        return lc.AIMessage(message["content"], tool_calls=calls)

    def counter(size: Callable[[str], int]) -> Callable[[Any], int]:
        def count_one(message: Any) -> int:
            tokens = exact.message_overhead + size(message.content)
            if message.type == "ai":
                for call in message.tool_calls:
                    tokens += size(call["name"]) + size(json.dumps(call["args"]))
            return tokens

        # LangChain tells the two forms apart by this annotation.
        count_one.__annotations__["message"] = lc.BaseMessage
        return count_one

    def trimmer(name: str, token_counter: Callable[[Any], int], cached: bool = False) -> Contestant:
        def trim(messages: list[Any], budget: int) -> int:
            kept = lc.trim_messages(
                messages,
                max_tokens=budget,
                token_counter=token_counter,
                strategy="last",
                include_system=True,
            )
            return len(kept)

        return Contestant(f"langchain, {name} counter", build, trim, cached)

    one = counter(exact.count)
    return [
        trimmer("message", one),
        trimmer("list", lambda messages: sum(map(one, messages))),
        trimmer("cached", counter(lru_cache(maxsize=None)(exact.count)), cached=True),
    ]


def litellm(exact: ExactTokenizer) -> list[Contestant]:
    """Return LiteLLM's trimmer; it has no parameter for a tokenizer, so its own is replaced."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import downloads
    utils = import_module("litellm.utils")
    inner: Any = import_module("litellm.litellm_core_utils.token_counter")
    inner._get_exact_count_function = lambda model, custom_tokenizer=None: exact.count

    def call(messages: list[Any], budget: int) -> int:
        return len(utils.trim_messages(messages, "gpt-4o", trim_ratio=1, max_tokens=budget))

    # With 4 to 10 tokens left it goes on through the whole history, counting all it has kept for
    # every message: it gets the luckiest of a few budgets, where it does not.
    def seconds(budget: int) -> float:
        start = process_time()
        call(history(300), budget)
        return process_time() - start

    lucky = {most: min(range(most, most - 50, -10), key=seconds) for most in (SMALL, LARGE)}

    def trim(messages: list[Any], budget: int) -> int:
        return call(messages, lucky.get(budget, budget))

    return [Contestant("litellm", dict, trim)]


def peers(exact: ExactTokenizer) -> list[Contestant]:
    """Return the peers that are installed."""
    found: list[Contestant] = []
    for make in (langchain, litellm):
        try:
            found += make(exact)
        except ImportError as error:
            print(f"left out: {error}", file=sys.stderr)
    for peer in found:  # what is loaded on first use is not timed
        peer.trim([peer.build(message) for message in history(10)], 2_000)
    return found


# Measuring.


@dataclass
class Job:
    """One thing to time: `run` is called `repeats` times, or once if it is slow."""

    name: str
    run: Callable[[], int]
    repeats: int
    seconds: list[float] = field(default_factory=list)
    kept: int = 0

    def step(self) -> None:
        """Run it once more, timed."""
        start = process_time()
        self.kept = self.run()
        self.seconds.append(process_time() - start)

    def is_done(self) -> bool:
        """Say whether it ran often enough."""
        slow = bool(self.seconds) and self.seconds[0] > SLOW_SECONDS
        return slow or len(self.seconds) >= self.repeats

    @property
    def median(self) -> float:
        """The median of its times."""
        return median(self.seconds)


@dataclass(frozen=True)
class Row:
    """One comparison: `ratio` is how many times the peer's time is Muntin's."""

    work: str
    traffic: str
    messages: int
    budget: int
    peer: str
    peer_ms: float
    muntin_ms: float
    ratio: float
    peer_runs: int
    peer_kept: int
    muntin_kept: int


def race(jobs: Sequence[Job]) -> None:
    """Run the jobs in turns, those with more repeats several times a turn."""
    gc.collect()
    gc.freeze()  # what was built before is nobody's burden
    rounds = min(job.repeats for job in jobs)
    while not all(job.is_done() for job in jobs):
        for job in jobs:
            for _ in range(job.repeats // rounds):
                if not job.is_done():
                    job.step()
    gc.unfreeze()


def compare(
    work: str, messages: int, budget: int, own: Job, others: Sequence[Job], traffic: str = "agent"
) -> list[Row]:
    """Race Muntin's job against others."""
    print(f"{work}: {messages:,} messages ({traffic}) into {budget:,} ...", file=sys.stderr)
    race([own, *others])
    return [
        Row(
            work,
            traffic,
            messages,
            budget,
            job.name,
            job.median * 1e3,
            own.median * 1e3,
            job.median / own.median,
            len(job.seconds),
            job.kept,
            own.kept,
        )
        for job in others
    ]


def first_call(who: Contestant, given: Sequence[Dict], budget: int, repeats: int) -> Job:
    """Return the job of trimming prebuilt messages."""
    messages = [who.build(message) for message in given]
    return Job(who.name, lambda: who.trim(messages, budget), repeats)


def next_turn(
    who: Contestant, given: Sequence[Dict], budget: int, repeats: int, traffic: str = "agent"
) -> Job:
    """Return the job of trimming again with one more exchange, each time a new one."""
    messages = [who.build(message) for message in given]
    turns = islice(exchanges(traffic), repeats)
    new = [[who.build(message) for message in turn] for turn in turns]
    new.reverse()  # all contestants begin with the same
    if who.remembers:
        who.trim(messages, budget)

    def run() -> int:
        messages[len(given) :] = new.pop()
        return who.trim(messages, budget)

    return Job(who.name, run, repeats)


def trimming(
    sizes: Sequence[int], budgets: Sequence[int], repeats: int, traffic: str = "agent"
) -> list[Row]:
    """Compare first calls and next turns with the peers."""
    exact = openai_tokenizer("o200k_base")
    rows: list[Row] = []
    installed = peers(exact)
    for size, budget in product(sizes, budgets):
        given = history(size, traffic)
        rivals = [
            peer for peer in installed if peer.name != "litellm" or size <= LITELLM_MOST[budget]
        ]
        own = muntin(exact, remembers=False)
        rows += compare(
            "cold",
            size,
            budget,
            first_call(own, given, budget, 5 * repeats),
            # On a first call a cache has nothing to remember.
            [first_call(peer, given, budget, repeats) for peer in rivals if not peer.remembers],
            traffic,
        )
        if size == 10_000:
            own = muntin(exact, remembers=True)
            rows += compare(
                "next turn",
                size,
                budget,
                next_turn(own, given, budget, 20 * repeats, traffic),
                # LiteLLM has nothing to remember: its next turn is its first call.
                [
                    next_turn(peer, given, budget, repeats, traffic)
                    for peer in rivals
                    if peer.name != "litellm"
                ],
                traffic,
            )
    return rows


def ourselves(sizes: tuple[int, int], budgets: Sequence[int], repeats: int) -> list[Row]:
    """Compare Muntin with itself: ten times the history, and the next turn with the first."""
    exact = openai_tokenizer("o200k_base")
    rows: list[Row] = []
    small, large = map(history, sizes)
    fresh = muntin(exact, remembers=False)
    for budget in budgets:
        base = first_call(fresh, small, budget, repeats)
        long = first_call(fresh, large, budget, repeats)
        long.name = f"muntin, {len(large):,} messages"
        rows += compare("cold", len(small), budget, base, [long])
        turn = next_turn(muntin(exact, remembers=True), small, budget, 10 * repeats)
        again = first_call(fresh, small, budget, repeats)
        again.name = "muntin, cold"
        rows += compare("next turn", len(small), budget, turn, [again])
    return rows


def planning(repeats: int, size: int = 1_000) -> list[Row]:
    """Compare planning a window of `size` messages, all counts known, with counting it once."""
    exact = openai_tokenizer("o200k_base")
    messages = [Message.from_dict(message) for message in history(10 * size)]
    window = [messages[0], *messages[1 - size :]]
    known = Plain(exact)
    budget = compose(window, LARGE * size, known).tokens
    texts = [text for message in window for text in texts_of(message)]
    own = Job("muntin", lambda: len(compose(messages, budget, known).messages), 5 * repeats)
    own.run()
    counting = Job("tiktoken, counting it once", lambda: sum(map(exact.count, texts)), repeats)
    rows = compare("planning", 10 * size, budget, own, [counting])
    return [replace(row, peer_kept=size) for row in rows]


def importing(repeats: int) -> list[Row]:
    """Compare the time to import, each in a new process."""
    names = ("muntin", "langchain_core.messages", "litellm")
    found = [name for name in names if find_spec(name.partition(".")[0])]
    jobs = {name: Job(name, int, repeats) for name in found}
    for _, name in product(range(repeats), found):
        code = (
            f"import time; t = time.process_time(); import {name}; print(time.process_time() - t)"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        jobs[name].seconds.append(float(run.stdout.split()[-1]))
    own = jobs.pop("muntin")
    return compare("import", 0, 0, own, list(jobs.values()))


# What is tokenised.


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message that are counted."""
    calls = [text for call in message.tool_calls for text in (call.name, call.arguments)]
    return [message.text, *calls]


@dataclass(frozen=True)
class Asked:
    """What the tokenizer was asked, in characters; `needless` are texts it need not have seen."""

    work: str
    messages: int
    budget: int
    history: int
    window: int
    tokenised: int
    needless: int


def asked(size: int, budget: int) -> list[Asked]:
    """Record what a first call and the next turn have tokenised."""
    tokenizer = Recording(openai_tokenizer("o200k_base"))
    messages = [Message.from_dict(message) for message in history(size)]
    new = [Message.from_dict(message) for message in next(exchanges())]
    found: list[Asked] = []
    for work, given in (("cold", messages), ("next turn", messages + new)):
        tokenizer.asked.clear()
        window = compose(given, budget, tokenizer)
        kept = [text for message in window.messages for text in texts_of(message)]
        needed = set(kept) if work == "cold" else {t for m in new for t in texts_of(m)}
        found.append(
            Asked(
                work,
                size,
                budget,
                sum(len(text) for message in given for text in texts_of(message)),
                sum(map(len, kept)),
                sum(map(len, tokenizer.asked)),
                sum(text not in needed for text in tokenizer.asked),
            )
        )
    return found


# What is asked of Muntin, and how it is told.


@dataclass(frozen=True)
class Line:
    """One acceptance line; `holds` is None if it was not measured."""

    text: str
    value: float | None
    holds: bool | None


def acceptance(rows: Sequence[Row], texts: Sequence[Asked]) -> list[Line]:
    """Hold the measurements against what is asked."""

    def ratio(work: str, peer: str, messages: int = 10_000, budget: int = SMALL) -> float | None:
        """Return the ratio to this peer, to the faster of its forms."""
        wanted = (work, "agent", messages, budget)
        return min(
            (
                row.ratio
                for row in rows
                if (row.work, row.traffic, row.messages, row.budget) == wanted
                and row.peer.startswith(peer)
                and "cached" not in row.peer
            ),
            default=None,
        )

    def at_least(text: str, value: float | None, limit: float) -> Line:
        return Line(text, value, None if value is None else value >= limit)

    def at_most(text: str, value: float | None, limit: float) -> Line:
        return Line(text, value, None if value is None else value <= limit)

    def turned(value: float | None) -> float | None:
        return None if value is None else 1 / value

    def needless(work: str) -> int | None:
        return max((each.needless for each in texts if each.work == work), default=None)

    plan_ratio = next((row.ratio for row in rows if row.work == "planning"), None)
    return [
        # The group that no longer fits is counted to know that: a call's name, arguments, result.
        at_most(
            "cold: texts tokenised that cannot fit, at most one group (3)", needless("cold"), 3
        ),
        at_least("cold, 10,000 into 8k: 300 times LangChain", ratio("cold", "langchain"), 300),
        at_least("cold, 10,000 into 8k: 300 times LiteLLM", ratio("cold", "litellm"), 300),
        at_most("cold, 8k: 100,000 at most 1.3 times 10,000", ratio("cold", "muntin"), 1.3),
        at_least("next turn, 8k: 10 times our cold call", ratio("next turn", "muntin"), 10),
        at_least("next turn, 8k: 3,000 times LangChain", ratio("next turn", "langchain"), 3_000),
        at_most("next turn: texts tokenised that are not new, none", needless("next turn"), 0),
        at_most("planning 1,000: at most 0.1 of counting once", turned(plan_ratio), 0.1),
        at_most(
            "import: at most 0.2 of langchain_core.messages",
            turned(ratio("import", "langchain", 0, 0)),
            0.2,
        ),
    ]


def show(rows: Sequence[Row], texts: Sequence[Asked], lines: Sequence[Line]) -> str:
    """Write tables for a person."""
    table = [
        ("work", "texts", "messages", "budget", "peer", "peer ms", "muntin ms", "ratio", "kept")
    ]
    for row in rows:
        once = " (once)" if row.peer_runs == 1 else ""
        table.append(
            (
                row.work,
                row.traffic if row.messages else "-",
                f"{row.messages:,}" if row.messages else "-",
                f"{row.budget:,}" if row.budget else "-",
                row.peer + once,
                f"{row.peer_ms:,.2f}",
                f"{row.muntin_ms:,.2f}",
                f"{row.ratio:,.1f}",
                f"{row.peer_kept}/{row.muntin_kept}" if row.muntin_kept else "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    out += [
        "",
        "All count with Muntin's o200k_base; LiteLLM's own tokenizer is replaced by it. LiteLLM",
        "gets the luckiest budget within 50 tokens, for at others it walks the whole history, and",
        f"is left out above {LITELLM_MOST[LARGE]:,} messages into 128k: minutes a call.",
        "",
    ]
    out += [
        f"{each.work}, {each.messages:,} into {each.budget:,}: {each.tokenised:,} characters "
        f"tokenised; window {each.window:,}, history {each.history:,}; "
        f"{each.needless} needless texts"
        for each in texts
    ]
    out.append("")
    marks = {True: "pass", False: "FAIL", None: "not measured"}
    for line in lines:
        value = "" if line.value is None else f": {line.value:,.3g}"
        out.append(f"{marks[line.holds]:12}  {line.text}{value}")
    return "\n".join(out)


def versions() -> Iterator[tuple[str, str]]:
    """Yield what is compared, with its version."""
    for name in ("muntin", "tiktoken", "langchain-core", "litellm"):
        with suppress(PackageNotFoundError):
            yield name, version(name)


def main() -> None:
    """Measure, print, and write the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repetitions")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "compose.json")
    options = parser.parse_args()
    quick: bool = options.quick
    repeats, budgets = (1, (SMALL,)) if quick else (5, (SMALL, LARGE))
    sizes = SIZES[:3] if quick else SIZES
    openai_tokenizer("o200k_base").count("loaded before anything is timed")
    rows = trimming(sizes, budgets, repeats)
    rows += trimming((10_000,), budgets, repeats, "recorded")
    rows += ourselves((10_000, 100_000), budgets, 4 * repeats)
    rows += planning(4 * repeats)
    rows += importing(3 * repeats)
    texts = [each for size, budget in product(sizes, budgets) for each in asked(size, budget)]
    lines = acceptance(rows, texts)
    print(show(rows, texts, lines))
    record = {
        "machine": {
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "versions": dict(versions()),
        "quick": quick,
        "rows": [asdict(row) for row in rows],
        "tokenised": [asdict(each) for each in texts],
        "acceptance": [asdict(line) for line in lines],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
