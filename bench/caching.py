"""What trimming costs when the provider caches: Muntin beside LangChain, LiteLLM and prompt-poet.

    python bench/caching.py [--short] [--out FILE]

Long sessions are replayed against the cache model, for the rules of Anthropic and of OpenAI. Every
policy gets the budget at which it retains as much history as `Stepped()` does, on average, within
1 %. Prints what was measured and what of the aims is reached, and writes a JSON list of figures.
Peers that are not installed are left out. docs/design/cache-policies.md says what the settings are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.cache import frontiers
from bench.cache.contest import (
    BEST_POET,
    FLOOR,
    HUMAN,
    LANGCHAIN,
    LENT,
    OPTIMUM,
    OURS,
    Contest,
    Row,
    measure,
)
from bench.cache.sessions import BUDGET, USUAL, Session, recorded, retrieved, sessions
from bench.cache.trimmers import RealPoet
from bench.measure import Figure, as_json, options
from muntin.core.planning.slot import Stepped

SHORT = ("recorded", "agent", "recorded, retrieval")


# What is asked. A setting that nobody named is a variant: its aim is the same, and told apart.

READS = {"recorded": 0.96, "agent": 0.88, "agent, no tool schemas": 0.88, "agent, steps": 0.95}
AT_MOST = {LANGCHAIN: 1 / 3, HUMAN: 1 / 3, OPTIMUM: 1.05, LENT: 1.05}
VARIANT = "variant"


def costs(session: Session, rows: Sequence[Row]) -> Iterator[Figure]:
    """Hold the rows of one session against each other, and against what is asked of long ones."""
    for figure in _costs(session, rows):
        yield figure if session.long else replace(figure, at_most=None, at_least=None)


def _costs(session: Session, rows: Sequence[Row]) -> Iterator[Figure]:
    own_row: Row | None = None
    poet: Row | None = None
    for row in rows:
        work = f"{place(session, row)}: {row.model.partition('/')[0]}"
        if row.policy == OURS:
            own_row = row
            yield from _own(session, work, row)
            continue
        assert own_row is not None
        if row.policy == FLOOR:
            assert poet is not None
            yield Figure(
                work=f"{work}: what nobody can undercut",
                peer=BEST_POET,
                ours=row.cost,
                theirs=poet.cost,
                unit="tokens",
                note="every message is written once, and read from then on",
            )
            continue
        if row.policy == BEST_POET:
            poet = row
        yield Figure(
            work=f"{work}: input cost",
            peer=row.policy,
            ours=own_row.cost,
            theirs=row.cost,
            unit="tokens",
            at_most=_at_most(session, row),
            note=_note(session, row),
        )


def _own(session: Session, work: str, row: Row) -> Iterator[Figure]:
    note = VARIANT if session.variant else ""
    if session.name in READS:
        yield Figure(
            work=f"{work}: read from the cache",
            peer="all input",
            ours=row.read_share,
            theirs=1,
            unit="share",
            at_least=READS[session.name],
            note=note,
        )
    if row.pause == next(iter(session.pauses)):
        yield Figure(
            work=f"{work}: history kept between cuts",
            peer="the history's budget",
            ours=row.steady,
            theirs=1,
            unit="share",
            at_least=0.75,
            note=note,
        )


def place(session: Session, row: Row) -> str:
    """Name a session, and the pause where that matters."""
    return f"{session.name}, {row.pause}" if session.volatile else session.name


def _at_most(session: Session, row: Row) -> float | None:
    if row.policy == BEST_POET:
        return 0.8 if session.volatile else 1.0
    if session.volatile and row.policy in (LANGCHAIN, HUMAN):
        return None  # nobody can cache what is most of the bill
    return AT_MOST.get(row.policy)


def _note(session: Session, row: Row) -> str:
    asked = session.variant or row.policy in (HUMAN, LENT) or row.pause != USUAL
    notes = [VARIANT] * asked + [f"step {row.step:,}"] * bool(row.step)
    return ", ".join([*notes, f"budget {row.budget:,}"])


def rules(budget: int, turns: int, rounds: int) -> Iterator[Figure]:
    """Yield what is asked of the frontier, and of the time it takes."""
    session = Session("", recorded(turns), volatile=retrieved(turns, budget), budget=budget)
    work = f"{turns} turns with retrieval of random size"
    same, count = frontiers.same_after_restarts(session)
    yield Figure(
        work=f"{work}: windows the same after a restart",
        peer="all windows",
        ours=same,
        theirs=count,
        unit="windows",
        at_least=1,
    )
    for name, trimming in (("Stepped()", Stepped()), ("Stepped(low=0.7)", Stepped(low=0.7))):
        moved = frontiers.moves(session, trimming)
        note = "" if trimming.low is None else VARIANT
        yield Figure(
            work=f"{work}: steps that do not move the frontier back, {name}",
            peer="all steps",
            ours=moved.moves - moved.backward,
            theirs=moved.moves,
            unit="steps",
            at_least=1,
            note=note,
        )
        yield Figure(
            work=f"{work}: least growth between two steps, {name}",
            peer="what the step before left free",
            ours=moved.grown,
            theirs=moved.free,
            unit="tokens",
            at_least=1,
            note=note,
        )
    chat = Session("", recorded(turns // 2), budget=budget)
    for what, (cached, plain) in (
        ("planning with caching", frontiers.planning(chat, 3)),
        ("a turn in SQLite with caching, the frontier stored", frontiers.turns(chat, rounds)),
    ):
        yield Figure(
            work=what, peer="the same without", ours=cached, theirs=plain, unit="s", at_most=1.5
        )


def real_cuts(asked: Iterable[Session]) -> Iterator[Figure]:
    """Ask the real prompt-poet where it cuts, and compare with the rule that is followed."""
    with ExitStack() as stack:
        try:
            real = stack.enter_context(RealPoet())
        except ImportError as error:
            print(f"prompt-poet's rule is not checked: {error}", file=sys.stderr)
            return
        for session in asked:
            contest = Contest(session)
            version = real.open(contest.sizes)
            plans = contest.poets(0.7 * contest.replay.history_budget)
            pairs = [contest.same_cuts(real, each) for each in (plans[0], plans[-1])]
            yield Figure(
                work=f"{session.name}: cuts where prompt-poet {version} itself cuts",
                peer="all requests it was asked for",
                ours=sum(same for same, _ in pairs),
                theirs=sum(count for _, count in pairs),
                unit="requests",
                at_least=1,
            )


def show(rows: Sequence[Row], figures: Sequence[Figure]) -> str:
    """Write tables for a person."""
    table = [("session", "pause", "rules", "policy", "budget", "read", "retained", "cost")]
    table += [
        (
            row.session,
            row.pause,
            row.model.partition("/")[0],
            row.policy + (f" {row.step:,}" if row.step else ""),
            f"{row.budget:,}" if row.budget else "-",
            f"{row.read_share:.1%}" if row.read_share else "-",
            f"{row.retained:,.0f}",
            f"{row.cost:,.0f}",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    out.append("")
    words = {True: "held", False: "NOT HELD", None: ""}
    for figure in figures:
        most, least = figure.at_most, figure.at_least
        aim = f", at most {most:.3g}" if most else f", at least {least:.3g}" if least else ""
        note = f" ({VARIANT})" if VARIANT in figure.note else ""
        what = f"{figure.work} / {figure.peer}"
        out.append(f"{words[figure.held]:8}  {what}: {figure.ratio:.3f}{aim}{note}")
    return "\n".join(out)


def run(short: bool) -> tuple[list[Row], list[Figure]]:
    """Measure everything."""
    if short:
        asked = sessions(60, 16_000, (USUAL, "4 min"), names=SHORT)
    else:
        asked = sessions(1_000, BUDGET)
    figures = list(real_cuts(each for each in asked if not each.variant and not each.steps))
    rows: list[Row] = []
    for session in asked:
        found = list(measure(session))
        rows += found
        figures += costs(session, found)
    figures += rules(asked[0].budget, 80 if short else 400, 5 if short else 60)
    return rows, figures


def main() -> None:
    """Measure, print, and write the figures as JSON."""
    arguments = options(__doc__).parse_args()
    rows, figures = run(arguments.short)
    print(show(rows, figures))
    if arguments.out is not None:
        arguments.out.write_text(
            as_json([figure.to_dict() for figure in figures]), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
