"""The result of each window: the answer, its cost, the calls and their results.

Owns which answer belongs to which window, and how a step is told in words. It reads the items of
turns; `data` shows the window itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from muntin.core.counting.counter import as_tokenizer
from muntin.core.parts import ToolCall
from muntin.core.report import Reported, reported_words
from muntin.core.usage import Usage
from muntin.inspector.plans import Plans
from muntin.providers.names import cost_of
from muntin.timeline.items import Item, Record
from muntin.view.lines import clip

# How many characters of an answer, a call and its arguments are shown, and how many calls.
ANSWER, CALL, VALUE, CALLS = 20_000, 120, 40, 8
# How many characters of an answer a row shows; from this length on equal texts are a repetition.
ROW, SAME = 160, 40
# A provider counts a little differently: a smaller difference is not shown.
_NEAR, _FEW = 0.05, 128
# The text of a result that was cut by the tool's own limit.
_OWN_LIMIT = re.compile(r"\[cut: [\d,]+ of ([\d,]+) characters left out\]$")
_SHORTER = ("trimmed", "short", "stubbed", "dropped")


@dataclass(frozen=True, slots=True)
class Step:
    """A window, its answer, and the results of its calls."""

    record: Record
    answer: Item | None = None
    results: tuple[Item, ...] = ()
    # How many tokens of the call and its results the next window of the turn shows.
    cut_to: int | None = field(default=None)

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The calls of the answer."""
        return self.answer.message.tool_calls if self.answer and self.answer.message else ()


def items_of(plans: Plans, session: str, first: int, last: int) -> dict[int, list[Item]]:
    """Return the items of some turns of a session, by turn."""
    turns = plans.store.turns(session)
    begins = [turn.first for turn in turns if turn.number >= first]
    ends = [turn.first for turn in turns if turn.number > last]
    items: dict[int, list[Item]] = {}
    if begins:
        before = min(ends, default=None)
        for item in plans.store.read(session, after=min(begins) - 1, before=before):
            items.setdefault(item.turn, []).append(item)
    return items


def steps_of(records: Sequence[Record], items: Sequence[Item]) -> list[Step]:
    """Return the windows of one turn, each with its answer."""
    answers = [item for item in items if item.message and item.role == "assistant"]
    results = {item.message.tool_call_id: item for item in items if item.message}
    steps: list[Step] = []
    for place, record in enumerate(records):
        answer = _answer(records, place, answers)
        calls = answer.message.tool_calls if answer and answer.message else ()
        brought = tuple(results[call.id] for call in calls if call.id in results)
        following = records[place + 1] if place + 1 < len(records) else None
        steps.append(
            Step(record, answer, brought, _tokens_in_next_window(following, answer, brought))
        )
    return steps


def _answer(records: Sequence[Record], place: int, answers: Sequence[Item]) -> Item | None:
    """Return the answer to a window: by its number, or by time if some were never answered."""
    if len(answers) == records[-1].step:
        return answers[records[place].step - 1]
    times = [record.time for record in records]
    if answers and answers[0].time < times[0]:  # stored when the answer had come
        within = [answer for answer in answers if answer.time <= times[place]]
        within = [answer for answer in within if not place or answer.time > times[place - 1]]
        return within[-1] if within else None
    within = [answer for answer in answers if answer.time >= times[place]]
    ends = times[place + 1] if place + 1 < len(times) else None
    return within[0] if within and (ends is None or within[0].time < ends) else None


def _tokens_in_next_window(
    record: Record | None, answer: Item | None, results: Sequence[Item]
) -> int | None:
    """Return how many tokens of some results the next window shows, if fewer than they have."""
    if record is None or answer is None or not results:
        return None
    answer_tokens = _tokens(answer)
    tokens = answer_tokens + sum(map(_tokens, results))
    for slot in reversed(json.loads(record.report)["slots"]):
        newest = slot["decisions"][-1] if slot["decisions"] else None
        if newest is not None and newest["tokens_asked"] == tokens:
            shorter = newest["status"] in _SHORTER
            return max(0, int(newest["tokens_kept"]) - answer_tokens) if shorter else None
    return None


def _tokens(item: Item) -> int:
    """Return the tokens of an item: as counted, else estimated."""
    if item.tokens:
        return next(iter(item.tokens.values()))
    return as_tokenizer("estimate").count(item.message.text if item.message else "")


# In words.


def row_of(step: Step, before: Step | None) -> dict[str, Any]:
    """Return the row of a step."""
    text = step.answer.message.text if step.answer and step.answer.message else ""
    return {
        "did": [call["words"] for call in calls_of(step)],
        "said": " ".join(text[: 4 * ROW].split())[:ROW],
        "repeats": _repeats(step, before),
    }


def _repeats(step: Step, before: Step | None) -> str | None:
    """Say that a step repeats the step before: the same calls, or the same words."""
    if before is None or step.answer is None or before.answer is None:
        return None
    if step.calls:
        same = list(map(_as_values, step.calls)) == list(map(_as_values, before.calls))
        return "makes the same calls as the step before" if same else None
    now, was = step.answer.message, before.answer.message
    alike = now and was and len(now.text) >= SAME and now.text == was.text
    return "says the same as the step before" if alike else None


def _as_values(call: ToolCall) -> tuple[str, Any]:
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.name, call.arguments


def calls_of(step: Step) -> list[dict[str, Any]]:
    """Return the calls of a step, each with its result, also in words."""
    results = {item.message.tool_call_id: item for item in step.results if item.message}
    alone = len(step.results) == 1
    calls = []
    for call in step.calls[:CALLS]:
        item = results.get(call.id)
        tokens = None if item is None else _tokens(item)
        outcome = _outcome(item, tokens, step.cut_to if alone else None)
        calls.append({"words": f"{call_words(call)} → {outcome}", "tokens": tokens})
    if len(step.calls) > CALLS:
        calls.append({"words": f"and {len(step.calls) - CALLS:,} more calls", "tokens": None})
    if not alone and step.cut_to is not None and calls:
        whole = sum(map(_tokens, step.results))
        calls.append(
            {"words": f"together {whole:,} tokens, cut to {step.cut_to:,}", "tokens": whole}
        )
    return calls


def _outcome(item: Item | None, tokens: int | None, cut_to: int | None) -> str:
    """Describe the result of a call."""
    if item is None or item.message is None:
        return "no result yet"
    text = item.message.text
    if text.startswith("Error:"):
        return " ".join(text[:CALL].split())
    size = f"{tokens:,} tokens"
    limit = _OWN_LIMIT.search(text[-200:])
    if limit is not None:
        size = f"{size}, cut by its own limit from {limit[1]} characters"
    return size if cut_to is None else f"{size}, cut to {cut_to:,}"


def call_words(call: ToolCall) -> str:
    """Return a call as code: look(n=3)."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    if isinstance(arguments, Mapping):
        inside = ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())
    else:
        inside = call.arguments
    return f"{call.name[:VALUE]}({inside[: CALL - 1] + '…' if len(inside) > CALL else inside})"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE else f"{text[: VALUE - 1]}…"


# Under a window.


def answer_of(plans: Plans, session: str, record: Record) -> dict[str, Any]:
    """Return the answer to a window, its cost, and the provider's numbers."""
    turn = record.turn
    records = plans.store.reports(session, first=turn, last=turn)
    steps = steps_of(records, items_of(plans, session, turn, turn).get(turn, ()))
    step = next(
        (candidate for candidate in steps if candidate.record.step == record.step), Step(record)
    )
    report, model = json.loads(record.report), json.loads(record.plan).get("profile")
    item = step.answer
    answer = usage = cost = None
    if item is not None and item.message is not None:
        answer = {
            "text": asdict(clip(item.message.text, ANSWER)),
            "calls": calls_of(step),
            "finish_reason": str(item.meta.get("finish_reason") or "")[:ROW] or None,
            "time": item.time.isoformat(timespec="milliseconds"),
        }
    # The billed tokens: from the answer, else the report's numbers of the input.
    reported = (report.get("prefix") or {}).get("reported")
    if item is not None and item.meta.get("usage"):
        usage = Usage.from_dict(item.meta["usage"])
    elif reported:
        usage = Usage(reported["input"], 0, reported.get("read", 0), reported.get("written", 0))
    if usage is not None and model is not None:
        cost = cost_of(model, usage)
    return {
        "answer": answer,
        "usage": None if usage is None else usage.to_dict(),
        "cost": None if cost is None else float(cost),
        "claim": _claim(report, usage),
    }


def _claim(report: Mapping[str, Any], usage: Usage | None) -> dict[str, Any]:
    """Compare Muntin's count with the provider's; with a sentence if they differ."""
    prefix = report.get("prefix") or {}
    shared = prefix.get("tokens")
    claim: dict[str, Any] = {"input": report["tokens"], "shared": shared, "differs": []}
    if usage is None or not usage.input:
        return {**claim, "reported": None}
    claim["reported"] = {"input": usage.input, "read": usage.cache_read}
    off = usage.input - report["tokens"]
    if abs(off) > max(_NEAR * report["tokens"], _FEW):
        more = "more" if off > 0 else "fewer"
        claim["differs"].append(
            f"The provider counted {abs(off):,} tokens {more} than Muntin, which counts with "
            f"{str(report['tokenizer'])[:VALUE]}."
        )
    if shared:
        words = reported_words(shared, Reported(usage.input, usage.cache_read, usage.cache_write))
        if ":" in words or "more than" in words:
            claim["differs"].append(f"{words[0].upper()}{words[1:]}.")
    elif shared == 0 and usage.cache_read > _FEW:
        claim["differs"].append(
            f"The provider read {usage.cache_read:,} of {usage.input:,} tokens from its cache; "
            "Muntin knows of no request before that begins like this one."
        )
    return claim


def rows(
    plans: Plans, session: str, records: Sequence[Record], since: tuple[int, int] = (0, 0)
) -> dict[tuple[int, int], Any]:
    """Return the rows of some windows, by turn and step; `since` is the first."""
    if not records:
        return {}
    items = items_of(plans, session, records[0].turn, records[-1].turn)
    rows: dict[tuple[int, int], Any] = {}
    before: Step | None = None
    for turn in sorted({record.turn for record in records}):
        of_turn = [record for record in records if record.turn == turn]
        for step in steps_of(of_turn, items.get(turn, ())):
            if (turn, step.record.step) >= since:
                rows[turn, step.record.step] = row_of(step, before)
            before = step
    return rows
