"""A window as HTML: in a notebook, or as one file that needs nothing else.

There is no script and nothing is loaded. All text of a message or a name is escaped here.
"""

from __future__ import annotations

from html import escape
from json import dumps

from muntin.core.report import COLUMNS, NOTHING, NUMBERS, Report
from muntin.core.window import Window
from muntin.view.bar import COLOURS, panes
from muntin.view.lines import DisplayedLine, TextPiece, clip, lines, show

# How many of the newest left-out messages are shown, and how many messages in all.
_LEFT_OUT = 200
_MOST = 3_000

_STYLE = """
.muntin{font:14px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;max-width:68rem}
.muntin *{box-sizing:border-box}
.muntin .head{font-size:1.05em;margin:0 0 .6em}
.muntin .head b{font-weight:650}
.muntin .bad{color:#d1344b;font-weight:650}
.muntin .bar{display:flex;height:2rem;border-radius:7px;overflow:hidden;gap:1px;margin:0 0 .5em}
.muntin .bar div{min-width:2px}
.muntin .free{background:repeating-linear-gradient(135deg,#8884 0 4px,#8882 4px 8px)!important}
.muntin .legend{display:flex;flex-wrap:wrap;gap:.2em 1.1em;margin:0 0 1em;padding:0;font-size:.92em}
.muntin i.key{display:inline-block;width:.75em;height:.75em;border-radius:3px;margin-right:.4em}
.muntin table{border-collapse:collapse;width:100%;font-size:.92em;margin:0 0 1em}
.muntin th,.muntin td{padding:.3em .6em;text-align:left;border-bottom:1px solid #8883;
background:none!important;vertical-align:top}
.muntin th{font-weight:600;opacity:.65}
.muntin .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.muntin .dropped,.muntin .excluded{color:#d1344b}
.muntin :is(.trimmed,.short,.stubbed){color:#b86e00}
.muntin summary{cursor:pointer;font-weight:600;margin:.6em 0 .4em}
.muntin article{border-left:4px solid #8886;padding:.1em 0 .1em .8em;margin:0 0 .7em}
.muntin article.out{opacity:.75}
.muntin article header{font-size:.85em;opacity:.75;padding:0}
.muntin pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.1em 0;padding:0;border:0;
background:none;color:inherit;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.muntin del{text-decoration:line-through;text-decoration-color:#d1344b;opacity:.6}
.muntin em{opacity:.65}
.muntin :is(pre,del,header,li,td){unicode-bidi:isolate}
"""
_PAGE_STYLE = """
:root{color-scheme:light dark}
body{margin:2rem auto;padding:0 1.2rem;max-width:70rem;background:#fff;color:#1b1e24}
h1{font:650 1.25rem/1.3 system-ui,sans-serif;margin:0 0 1rem}
@media (prefers-color-scheme:dark){body{background:#14161a;color:#e4e7ec}
body .muntin :is(.dropped,.excluded,.bad){color:#ff8095}
body .muntin :is(.trimmed,.short,.stubbed){color:#ffb454}}
"""


def page(window: Window) -> str:
    """Return a whole HTML page that shows the window and loads nothing."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Window: {window.tokens:,} tokens</title><style>{_PAGE_STYLE}</style></head>"
        f"<body><h1>Where every token went</h1>{_body(window, opened=True)}</body></html>\n"
    )


def html(window: Window) -> str:
    """Return the window as a piece of HTML, for a notebook."""
    return _body(window, opened=False)


def _body(window: Window, *, opened: bool) -> str:
    report = window.report
    share = f" ({report.tokens / report.budget:.0%})" if report.budget else ""
    state = ' · <span class="bad">over budget</span>' if report.over_budget else ""
    floors = " · floors ignored" if report.floors_ignored else ""
    return (
        f'<div class="muntin"><style>{_STYLE}</style>'
        f'<p class="head"><b>{report.tokens:,}</b> of {report.budget:,} tokens{share}{state}'
        f"{floors} · counted by {escape(report.tokenizer)}</p>"
        f"{_bar(window)}{_table(report)}{_not_carried(report)}{_messages(window, opened)}"
        f"{_tools(window)}</div>"
    )


def _bar(window: Window) -> str:
    cells, legend = [], []
    for name, tokens, (_, css) in panes(window):
        free = ' class="free"' if name == "free" else ""
        cells.append(
            f'<div{free} title="{tokens:,} tokens: {escape(name)}" '
            f'style="flex:{tokens} 0 2px;background:{css}"></div>'
        )
        legend.append(
            f'<span><i class="key" style="background:{css}"></i>'
            f"<bdi>{escape(name)}</bdi> {tokens:,}</span>"
        )
    return f'<div class="bar">{"".join(cells)}</div><p class="legend">{"".join(legend)}</p>'


def _table(report: Report) -> str:
    head = "".join(_cell("th", n, name) for n, name in enumerate(COLUMNS))
    rows = []
    for number, row in enumerate(report.rows()):
        cells = [
            _cell("td", n, "" if n > 1 and text == NOTHING else text) for n, text in enumerate(row)
        ]
        if number < len(report.slots):  # the row of a slot has a colour
            key = f'<i class="key" style="background:{_colour(number)}"></i>'
            cells[0] = f"<td>{key}<bdi>{escape(row[0])}</bdi></td>"
            cells[1] = f'<td class="{row[1]}">{row[1]}</td>'
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(tag: str, column: int, text: str) -> str:
    kind = ' class="n"' if column in NUMBERS else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)][1]


def _not_carried(report: Report) -> str:
    if not report.not_carried:
        return ""
    rows = "".join(
        f"<li>{escape(loss.provider)}"
        f"{'' if loss.message is None else f', message {loss.message}'}: "
        f"{escape(loss.what)}: {escape(loss.reason)}</li>"
        for loss in report.not_carried
    )
    return f"<p><b>Not carried</b> by a request made of this window</p><ul>{rows}</ul>"


def _messages(window: Window, opened: bool) -> str:
    every = lines(window)
    out = [line for line in every if line.place is None]
    hidden = {id(line) for line in out[:-_LEFT_OUT]}
    listed = [line for line in every if id(line) not in hidden]
    beyond = len(listed) - _MOST
    numbers = {slot.index: number for number, slot in enumerate(window.report.slots)}
    names = {slot.index: slot.name for slot in window.report.slots}
    articles = "".join(_article(show(window, line), numbers, names) for line in listed[-_MOST:])
    left_out = f", {len(out):,} left out" if out else ""
    notes = ""
    if hidden:
        notes += f"<p><em>{len(hidden):,} older messages that were left out are not shown.</em></p>"
    if beyond > 0:
        notes += f"<p><em>The first {beyond:,} lines are not shown.</em></p>"
    return (
        f"<details{' open' if opened else ''}><summary>{len(window.messages):,} messages{left_out}"
        f"</summary>{notes}{articles}</details>"
    )


def _article(line: DisplayedLine, numbers: dict[int, int], names: dict[int, str]) -> str:
    number = None if line.slot is None else numbers.get(line.slot)
    colour = "#8886" if number is None else _colour(number)
    titles = [line.role, *(["joined"] if line.slot is None else [names.get(line.slot, "")])]
    if line.name:
        titles.append(line.name)
    if line.state != "kept":
        titles.append(": ".join(word for word in (line.state, line.reason) if word))
    out = ' class="out"' if line.place is None else ""
    texts = [f"<pre>{''.join(map(_piece, line.pieces))}</pre>"] if line.pieces else []
    for name, piece in line.calls:
        texts.append(f"<pre>{_piece(piece, f'→ {escape(name)}(', ')')}</pre>")
    for kind, piece in line.notes:
        label = "" if piece.text.startswith("File: ") else f"{kind}: "
        texts.append(f"<pre>{label}{_piece(piece)}</pre>")
    return (
        f'<article{out} style="border-color:{colour}"><header><b>{escape(titles[0])}</b> '
        f"{escape(' · '.join(titles[1:]))}</header>{''.join(texts)}</article>"
    )


def _piece(piece: TextPiece, before: str = "", after: str = "") -> str:
    """Return a piece with what stands around it, struck through if it was cut."""
    text = escape(piece.text)
    if piece.hidden:
        note = f"<em>… {piece.hidden:,} more characters …</em>"
        text = f"{note}{text}" if piece.end == "head" else f"{text}{note}"
    text = f"{before}{text}{after}"
    return f"<del>{text}</del>" if piece.cut else text


def _tools(window: Window) -> str:
    if not window.tools:
        return ""
    texts = (clip(dumps(tool, ensure_ascii=False, indent=1)) for tool in window.tools)
    articles = "".join(f"<article><pre>{_piece(text)}</pre></article>" for text in texts)
    return f"<details><summary>{len(window.tools):,} tools</summary>{articles}</details>"
