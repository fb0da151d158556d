"""How sessions look on a terminal: tables, turns, summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from muntin.cli.terminal import console, many, print_json, safe, say
from muntin.core.counting.counter import file_hint
from muntin.core.parts import Other, Part, Reasoning, Text, compact_json
from muntin.timeline.entries import entry_of
from muntin.timeline.files import Imported
from muntin.timeline.items import Item, SessionInfo, Turn
from muntin.timeline.lines import iso

# How many sessions an import names, how much of a text is shown.
SHOWN = 20
LONGEST = 400


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
    out = console()
    out.print(table)
    if more:
        out.print(f"… and more; see them with --limit {10 * max(1, len(infos))}")


def show_session(info: SessionInfo, turns: Sequence[Turn], items: Sequence[Item]) -> None:
    from rich.text import Text as Styled

    out = console()
    counts = f"{many(info.items, 'item')} in {many(info.turns, 'turn')}"
    begin, end = _minute(info.created), _minute(info.updated)
    span = f"{begin} to {end.removeprefix(begin[:11])} UTC"
    key = _usual_key(items)
    counted = f" · tokens by {safe(key.partition('+')[0])}" if key else ""
    out.print(Styled(safe(info.id), "bold"))
    out.print(f"{counts} · {span}{counted}")
    hidden = info.items - len(items)
    if hidden:
        out.print(f"… {many(hidden, 'earlier item')}; see them with --limit {info.items}")
    status = {turn.number: turn.status for turn in turns}
    rows = [(str(item.position), _who(item), _tokens(item, key)) for item in items]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    turn = None
    for (position, who, tokens), item in zip(rows, items, strict=True):
        if item.turn != turn:
            turn = item.turn
            how = status.get(turn, "completed")
            heading = f"turn {turn}" if how == "completed" else f"turn {turn}, {how}"
            out.print(Styled(f"\n{heading}", "bold"))
        columns = position.rjust(wide[0]), who.ljust(wide[1]), tokens.rjust(wide[2]), ""
        line = Styled("  ".join(columns), "dim")
        line.append(_text(item), "not dim")
        out.print(line, no_wrap=True, overflow="ellipsis")


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
        said += [file_hint(file.name) for file in item.message.attachments]
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


def info_to_dict(info: SessionInfo) -> dict[str, Any]:
    times = {"created": iso(info.created), "updated": iso(info.updated)}
    return {"id": info.id, "items": info.items, "turns": info.turns, **times}
