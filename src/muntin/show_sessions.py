"""How sessions look on a terminal: tables, turns, summaries, and nothing that it would obey."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from muntin.core.parts import Other, Part, Reasoning, Text, compact_json
from muntin.entries import entry_of
from muntin.exchange import Imported
from muntin.exchange_lines import iso
from muntin.store.items import Item, SessionInfo, Turn

if TYPE_CHECKING:
    from rich.console import Console

# How many sessions an import names, how much of a text is shown.
SHOWN = 20
LONGEST = 400

# What could move the cursor, hide text or turn its direction round on a terminal.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def show_list(infos: Sequence[SessionInfo], name: str, *, more: bool) -> None:
    from rich.table import Table

    if not infos and not more:
        say(f"{name} has no sessions")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("session", overflow="fold")
    for heading in ("items", "turns"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("created (UTC)", "updated"):
        table.add_column(heading, no_wrap=True)
    for info in infos:
        counts = f"{info.items:,}", f"{info.turns:,}"
        table.add_row(safe(info.id), *counts, _minute(info.created), _minute(info.updated))
    console = _console()
    console.print(table)
    if more:
        console.print(f"… and more; see them with --limit {10 * max(1, len(infos))}")


def show_session(info: SessionInfo, turns: Sequence[Turn], items: Sequence[Item]) -> None:
    from rich.text import Text as Styled

    console = _console()
    counts = f"{many(info.items, 'item')} in {many(info.turns, 'turn')}"
    begin, end = _minute(info.created), _minute(info.updated)
    span = f"{begin} to {end.removeprefix(begin[:11])} UTC"
    key = _usual_key(items)
    counted = f" · tokens by {safe(key.partition('+')[0])}" if key else ""
    console.print(Styled(safe(info.id), "bold"))
    console.print(f"{counts} · {span}{counted}")
    hidden = info.items - len(items)
    if hidden:
        console.print(f"… {many(hidden, 'earlier item')}; see them with --limit {info.items}")
    status = {turn.number: turn.status for turn in turns}
    rows = [(str(item.position), _who(item), _tokens(item, key)) for item in items]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    turn = None
    for (position, who, tokens), item in zip(rows, items, strict=True):
        if item.turn != turn:
            turn = item.turn
            how = status.get(turn, "completed")
            heading = f"turn {turn}" if how == "completed" else f"turn {turn}, {how}"
            console.print(Styled(f"\n{heading}", "bold"))
        columns = position.rjust(wide[0]), who.ljust(wide[1]), tokens.rjust(wide[2]), ""
        line = Styled("  ".join(columns), "dim")
        line.append(_text(item), "not dim")
        console.print(line, no_wrap=True, overflow="ellipsis")


def show_imported(done: Sequence[Imported], name: str, as_json: bool) -> None:
    if as_json:
        listed = [{"id": d.session, "items": d.items, "turns": d.turns} for d in done]
        print_json({"store": name, "sessions": listed})
        return
    for each in done[:SHOWN]:
        counts = f"{many(each.items, 'item')} in {many(each.turns, 'turn')}"
        say(f"{each.session}: {counts}")
    if len(done) > SHOWN:
        say(f"… and {many(len(done) - SHOWN, 'more session')}")
    items = sum(each.items for each in done)
    say(f"{many(len(done), 'session')} with {many(items, 'item')} imported into {name}")


def _who(item: Item) -> str:
    return item.kind if item.kind == "reasoning" or item.role is None else item.role


def _usual_key(items: Sequence[Item]) -> str | None:
    """Return by which tokenizer most of the items were counted."""
    found = Counter(key for item in items for key in item.tokens)
    return found.most_common(1)[0][0] if found else None


def _tokens(item: Item, key: str | None) -> str:
    count = item.tokens.get(key) if key is not None else None
    return "-" if count is None else f"{count:,}"


def _text(item: Item) -> str:
    """Return the beginning of an item in one line, with what is special about it."""
    said: list[str] = []
    if not item.visibility.client:
        said.append("(hidden from the client)")
    if not item.visibility.history:
        said.append("(hidden from the model)")
    if item.transient:
        said.append("(for this turn only)")
    if item.message is None:
        said.append(_payload(item))
    else:
        content = item.message.content
        parts = (content,) if isinstance(content, str) else content or ()
        said += [part if isinstance(part, str) else _part(part) for part in parts]
        said += [f"{call.name}({call.arguments})" for call in item.message.tool_calls]
        said += [f"File: {file.name}" for file in item.message.attachments]
    begin = " ".join(text[:LONGEST] for text in said)
    return safe(" ".join(begin[:LONGEST].split()))


def _payload(item: Item) -> str:
    if item.kind == "context_inserted":
        entry = entry_of(item)
        return f"{entry.id} ({entry.name}): {entry.content}"
    return item.payload if isinstance(item.payload, str) else compact_json(item.payload)


def _part(part: Part) -> str:
    if isinstance(part, Text | Reasoning):
        return part.text
    return f"[{part.data['type'] if isinstance(part, Other) else type(part).__name__.lower()}]"


def _minute(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")[:16]


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def info_to_dict(info: SessionInfo) -> dict[str, Any]:
    times = {"created": iso(info.created), "updated": iso(info.updated)}
    return {"id": info.id, "items": info.items, "turns": info.turns, **times}


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False)


def say(text: str) -> None:
    print(safe(text))


def print_json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    print("\n".join(safe(line) for line in text.split("\n")))


def safe(text: str) -> str:
    """Write what a terminal would obey as an escape of JSON."""
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return f"\\u{ord(character):04x}" if character < "\U00010000" else json.dumps(character)[1:-1]
