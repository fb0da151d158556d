"""Make the pictures of the docs from what Muntin really does, and from what it really imports.

    python -m tools.pictures        # writes docs/images/*.svg

Every number and length in docs/concepts.md is read from a window of a recorded conversation, or
from its report; the arrows of docs/architecture.md are read from the source. Each picture brings
its own background, light or dark as the reader's system asks, so it can be read on any page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from bench.talks import ENGLISH
from muntin import Budget, Exact, History, Input, Message, Slots, Stepped, Window, user
from tools.layered import arrange
from tools.tree import ROOT, File, layers, links, read, reduced

IMAGES = ROOT / "docs" / "images"
RECORDED = ROOT / "src" / "muntin" / "cli" / "data" / "airline.json"
BUDGETS = (6_000, 3_000, 2_000, 1_200, 600)
FOUND = "Seats can be changed for free up to 24 hours before departure. " * 20
TURNS = 300  # of the conversation that is recalled from
REPEATS = 4  # one conversation is too short to be trimmed often
MODEL = "anthropic/claude-sonnet-4-5"
# Of the picture of the imports: how high a box is, the room between two rows, the head of an arrow.
BOX, BETWEEN, TIP = 36, 30, 7
DASHED = 'stroke-dasharray="4 3"'

STYLE = """
  .paper { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  .small { font-size: 11px; fill: #59636e; } .strong { font-weight: 600; }
  .middle { text-anchor: middle; } .end { text-anchor: end; }
  .box { fill: #f6f8fa; stroke: #8c959f; } .line { stroke: #8c959f; fill: none; }
  .arrow { fill: #8c959f; } .budget { stroke: #cf222e; stroke-dasharray: 4 3; }
  .rules { fill: #8250df; } .history { fill: #2f81f7; } .found { fill: #1a7f37; }
  .input { fill: #bf5b04; } .in { fill: #ffffff; font-size: 11px; text-anchor: middle; }
  .exact { stroke: #bf5b04; stroke-width: 2; fill: none; }
  .stepped { stroke: #2f81f7; stroke-width: 2; fill: none; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #161b22; stroke: #30363d; } text { fill: #e6edf3; }
    .small { fill: #9198a1; } .box { fill: #21262d; stroke: #6e7681; }
    .line { stroke: #6e7681; } .arrow { fill: #6e7681; } .budget { stroke: #ff7b72; }
    .exact { stroke: #f0883e; } .stepped { stroke: #58a6ff; } .in { fill: #ffffff; }
    .rules { fill: #8957e5; } .history { fill: #1f6feb; } .found { fill: #238636; }
    .input { fill: #bd561d; }
  }
"""


def main() -> None:
    """Write all pictures."""
    for name, picture in PICTURES.items():
        path = IMAGES / f"{name}.svg"
        path.write_text(picture(), encoding="utf-8")
        print(path)


def data_path() -> str:
    """Draw the way of one turn, with what came out at each station."""
    messages = recorded()
    window = compose(messages, 2_000)
    asked = compose(messages, 100_000).tokens  # of a small window only what it read is counted
    cut = sum(slot.status != "kept" for slot in window.report.slots)
    request = window.anthropic()
    stations = [
        ("Timeline", "the durable past", f"{len(messages)} messages"),
        ("Slots", "named places, rules", f"{len(window.report.slots)} slots ask for {asked:,}"),
        ("Plan", "all decisions", f"{cut} of them must give"),
        ("Window", "messages, report", f"{window.tokens:,} of 2,000 tokens"),
        ("Provider", "the wire form", f"{len(request['messages'])} messages, system"),
    ]
    parts, wide = [], 148
    for number, (name, what, number_of) in enumerate(stations):
        left = 20 + number * (wide + 22)
        parts += [
            f'<rect class="box" x="{left}" y="40" width="{wide}" height="84" rx="8"/>',
            text(left + wide / 2, 66, name, "middle strong"),
            text(left + wide / 2, 87, what, "middle small"),
            text(left + wide / 2, 108, number_of, "middle small"),
        ]
        if number:
            parts.append(
                f'<path class="arrow" d="M{left - 19} 79 h9 v-5 l8 8 l-8 8 v-5 h-9 z"/>',
            )
    end = 20 + 4 * 170 + wide / 2
    parts += [
        f'<path class="line" d="M{end} 124 v34 h{94 - end} v-24"/>',
        f'<path class="arrow" d="M{94} 124 l-6 10 h12 z"/>',
        text((end + 94) / 2, 176, "the answer is appended to the timeline", "middle small"),
    ]
    return svg(868, 196, "One turn, from the timeline to the provider and back", parts)


def trimmed() -> str:
    """Draw what the slots of one window keep as the budget shrinks."""
    messages = recorded()
    parts = [text(20, 34, "What each slot keeps of the same turn, as the budget shrinks", "strong")]
    left, wide = 80, 630
    scale = wide / BUDGETS[0]
    for row, budget in enumerate(BUDGETS):
        window = compose(messages, budget)
        top = 56 + row * 50
        parts.append(text(left - 12, top + 20, f"{budget:,}", "end"))
        x = float(left)
        for slot in window.report.slots:
            width = slot.tokens_kept * scale
            parts.append(
                f'<rect class="{slot.name}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="30">'
                f"<title>{slot.name}: {slot.tokens_kept:,} of {slot.tokens_asked:,} tokens"
                "</title></rect>"
            )
            if width > 24:
                parts.append(text(x + width / 2, top + 19, f"{slot.tokens_kept:,}", "in"))
            x += width
        edge = left + budget * scale
        parts.append(f'<path class="budget" d="M{edge:.1f} {top - 5} v40"/>')
        parts.append(text(edge + 6, top + 20, summary(window), "small"))
    bottom = 56 + len(BUDGETS) * 50 + 16
    legend = {"rules": "rules", "history": "history", "found": "found text", "input": "input"}
    for number, (name, label) in enumerate(legend.items()):
        x = left + number * 110
        parts.append(f'<rect class="{name}" x="{x}" y="{bottom - 11}" width="13" height="13"/>')
        parts.append(text(x + 20, bottom, label, "small"))
    parts.append(f'<path class="budget" d="M{left + 450} {bottom - 13} v16"/>')
    parts.append(text(left + 458, bottom, "budget in tokens", "small"))
    return svg(868, bottom + 20, "What each slot keeps as the budget shrinks", parts)


def frontier() -> str:
    """Draw the oldest message in the window, request by request, under both kinds of trimming."""
    exact, stepped = oldest(Exact()), oldest(Stepped())
    requests, most = len(exact), max(*exact, *stepped)
    left, top, wide, high = 70, 60, 720, 230

    def point(number: int, value: int) -> str:
        return f"{left + number * wide / (requests - 1):.1f} {top + high - value * high / most:.1f}"

    def staircase(values: Sequence[int]) -> str:
        return "M" + " L".join(
            f"{point(number, before)} L{point(number, value)}"
            for number, (before, value) in enumerate(
                zip((values[0], *values), values, strict=False)
            )
        )

    parts = [
        text(
            20, 34, "The frontier: the oldest message in the window, request by request", "strong"
        ),
        f'<path class="line" d="M{left} {top} v{high} h{wide}"/>',
        f'<path class="exact" d="{staircase(exact)}"/>',
        f'<path class="stepped" d="{staircase(stepped)}"/>',
        text(left + wide, top + high + 20, f"request {requests}", "end small"),
        text(left, top + high + 20, "request 1", "small"),
        text(left - 8, top + high, "1", "end small"),
        text(left - 8, top + 8, f"{most + 1}", "end small"),
    ]
    for row, (name, values) in enumerate({"exact": exact, "stepped": stepped}.items()):
        moves = sum(later != before for before, later in pairwise(values))
        y = top + 22 + row * 24
        parts.append(f'<path class="{name}" d="M{left + 24} {y - 4} h30"/>')
        label = f"{name.capitalize()}(): moved in {moves} of {requests} requests"
        parts.append(text(left + 64, y, label))
    return svg(868, top + high + 40, "The frontier over requests, exact and stepped", parts)


def recalled() -> str:
    """Draw which turns of a long conversation a window shows, without and with recall."""
    facts = list(zip(range(14, TURNS, 24), ENGLISH.facts, strict=False))
    said = [ENGLISH.small[n % len(ENGLISH.small)].format(n) for n in range(TURNS)]
    for place, (fact, _) in facts:
        said[place] = fact
    messages = [user(each) for each in said]
    place, (_, question) = facts[2]
    parts = [text(20, 34, f"A window of 2,000 tokens on {TURNS} turns: “{question}”", "strong")]
    left, wide = 130, 2.4
    for row, (label, tokens) in enumerate((("the newest", 0), ("with recall", 300))):
        top = 56 + row * 54
        slots = Slots(2_000 - tokens)
        slots.add("history", messages)
        first = TURNS - len(slots.render().messages)
        past = History(messages[:first])  # what has left the window
        shown = past.relevant(question, tokens=tokens).positions if tokens else ()
        parts.append(text(left - 12, top + 20, label, "end"))
        parts.append(
            f'<rect class="box" x="{left}" y="{top}" width="{TURNS * wide:g}" height="30"/>'
        )
        drawn = [("history", first, TURNS - first), *(("found", each, 1) for each in shown)]
        for kind, at, count in drawn:
            x, width = left + at * wide, max(count * wide, 3)
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="30"/>'
            )
    edge = left + (place + 0.5) * wide
    parts.append(f'<path class="budget" d="M{edge:.1f} 48 v100"/>')
    legend = {"history": "the newest turns", "found": "recalled"}
    for number, (kind, label) in enumerate(legend.items()):
        x = left + number * 150
        parts.append(f'<rect class="{kind}" x="{x}" y="165" width="13" height="13"/>')
        parts.append(text(x + 20, 176, label, "small"))
    parts.append(f'<path class="budget" d="M{left + 300} 163 v16"/>')
    parts.append(text(left + 308, 176, "where the answer was given", "small"))
    return svg(868, 196, "Which turns a window shows, without and with recall", parts)


def imports() -> str:
    """Draw which package imports which; an arrow that follows from others is left out."""
    files = read(ROOT / "src" / "muntin")
    rows = list(reversed(layers()))
    needed: dict[str, set[str]] = {name: set() for row in rows for name in row}
    for _, one, other in links(files, "load"):
        needed.get(one, set()).add(other)
    early = sorted((one, other) for one, others in reduced(needed).items() for other in others)
    late = sorted(link[1:] for link in links(files, "late") if link[2] not in needed[link[1]])
    inner = {name: inside(files, name) for name in needed}
    widths = {name: max(7.6 * len(name), 6.2 * len(inner[name])) + 30 for name in needed}
    layout = arrange(rows, [*early, *dict.fromkeys(late)], widths, middle=434)
    parts = [arrow(way, dashed=ends in late) for ends, way in layout.ways.items()]
    for number, row in enumerate(rows):
        for name in row:
            x, y, wide = round(layout.boxes[name], 1), top_of(number), widths[name]
            parts += [
                f'<rect class="box" x="{x - wide / 2:.1f}" y="{y}" width="{wide:.1f}" '
                f'height="{BOX}" rx="7"/>',
                text(x, y + (16 if inner[name] else 22), name, "middle strong"),
                text(x, y + 29, inner[name], "middle small"),
            ]
    bottom = top_of(len(rows)) - 6
    parts += [
        f'<path class="line" d="M24 {bottom - 4} h30"/>',
        text(62, bottom, "imports; what follows from other arrows is left out", "small"),
        f'<path class="line" {DASHED} d="M424 {bottom - 4} h30"/>',
        text(462, bottom, "imports late, inside of a function", "small"),
    ]
    return svg(868, bottom + 20, "Which package imports which, by layer", parts)


def inside(files: Mapping[str, File], name: str) -> str:
    """Name the packages inside of a package."""
    start = f"muntin.{name}."
    return " · ".join(
        module.removeprefix(start)
        for module, file in files.items()
        if file.is_package and module.startswith(start) and "." not in module.removeprefix(start)
    )


def top_of(row: int) -> int:
    """Return where the boxes of a row begin."""
    return 24 + row * (BOX + BETWEEN)


def arrow(way: Sequence[tuple[int, float]], *, dashed: bool) -> str:
    """Draw an arrow from row to row, straight past the rows between its ends."""
    down = way[0][0] < way[-1][0]
    y = top_of(way[0][0]) + (BOX if down else 0)
    path = f"M{way[0][1]:.1f} {y}"
    for (_, before), (row, x) in pairwise(way):
        last = row == way[-1][0]
        near, far = (top_of(row), top_of(row) + BOX) if down else (top_of(row) + BOX, top_of(row))
        if last:
            near -= TIP if down else -TIP
        middle = (y + near) / 2
        path += f" C{before:.1f} {middle} {x:.1f} {middle} {x:.1f} {near}"
        path += "" if last else f" V{far}"
        y = far
    tip = f"M{way[-1][1]:.1f} {near + (TIP if down else -TIP)} l-4 {-TIP if down else TIP} h8 z"
    drawn = f'class="line" {DASHED}' if dashed else 'class="line"'
    return f'<path {drawn} d="{path}"/><path class="arrow" d="{tip}"/>'


def compose(messages: list[Message], budget: int) -> Window:
    """Compose the last question of the recorded conversation, with its rules and a found text."""
    slots = Slots(Budget(budget), tokenizer="openai/gpt-4o", profile=MODEL)
    slots.add("rules", messages[0].text[:1_200], role="system", priority=100)
    slots.add("history", messages[1:-1])
    slots.add("found", FOUND, role="system", priority=5, max_ratio=0.25, trim_behavior="char")
    slots.add("input", Input(messages[-1].text))
    return slots.render()


def oldest(trimming: Exact | Stepped) -> list[int]:
    """Return which message is the oldest in the window of each request of a long conversation."""
    history: list[Message] = []
    window: Window | None = None
    results = []
    for message in recorded()[1:] * REPEATS:
        if message.role == "assistant":
            slots = Slots(
                5_000, tokenizer="openai/gpt-4o", profile=MODEL, trimming=trimming, previous=window
            )
            slots.add("rules", "You are an airline agent.", role="system", priority=100)
            slots.add("history", history)
            window = slots.render()
            results.append(len(history) - (len(window.messages) - 1))
        history.append(message)
    return results


def recorded() -> list[Message]:
    """Return the recorded conversation that comes with Muntin."""
    data = json.loads(RECORDED.read_text(encoding="utf-8"))
    return [Message.from_dict(message) for message in data["messages"]]


def summary(window: Window) -> str:
    """Say in a few words what the report says of the history."""
    history = next(slot for slot in window.report.slots if slot.name == "history")
    return f"{history.messages_kept} of {history.messages_asked} messages"


def text(x: float, y: float, content: str, kind: str = "") -> str:
    """Write one line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(content)}</text>'


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Put the parts on a sheet of paper."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" '
            'rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


PICTURES = {
    "data-path": data_path,
    "trimmed": trimmed,
    "frontier": frontier,
    "recall": recalled,
    "imports": imports,
}

if __name__ == "__main__":
    main()
