"""One session under every policy, each with the budget at which it retains as much history."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, partial

from bench.cache.sessions import MODELS, Session
from bench.cache.trimmers import (
    Maker,
    RealPoet,
    Sizes,
    again,
    langchain,
    langchain_human,
    litellm,
    poet,
    poet_cut,
    poet_start,
)
from muntin.core.planning.slot import Exact, Stepped
from muntin.simulator.replay import SentMessages
from muntin.simulator.result import PolicyRun
from muntin.simulator.run import Replay

OURS = "muntin Stepped()"
LANGCHAIN = "langchain"
HUMAN = "langchain, human first"
BEST_POET = "prompt-poet, best step"
README_POET = "prompt-poet, retrieval in front"
OPTIMUM = "optimum"
LENT = "optimum, all room lent"
FLOOR = "nothing written twice"

CLOSE = 0.01
TRIES = 8
# prompt-poet's default step, and wider ones; its best is what counts.
STEPS = (1_000, 4_000, 8_000, 12_000, 16_000)
# How many requests of a session the real prompt-poet is asked for.
ASKED = 24


@dataclass(frozen=True)
class Plans:
    """What a policy sends with some budget, and the tokens of history it retains on average."""

    budget: int
    sent: list[SentMessages]
    retained: float
    step: int = 0


@dataclass(frozen=True)
class Row:
    """One policy on one session; `steady` is the share of the history's budget that is kept from
    the first cut to the last."""

    session: str
    pause: str
    model: str
    policy: str
    budget: int
    retained: float
    cost: float
    read_share: float = 0.0
    steady: float = 0.0
    step: int = 0


class Contest:
    """One session, planned once, and priced by the rules of each provider."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.budget = session.budget
        self.replays = {model: session.replay(model) for model in MODELS}
        self.replay = self.replays[MODELS[0]]
        self.sizes = Sizes(self.replay)
        self._plans: dict[str, Plans | None] = {}
        self.poets = cache(self._poets)

    def peers(self, target: float) -> Iterator[tuple[str, Plans]]:
        """Yield who slides, with the budget at which he retains as much."""
        makers: dict[str, Maker] = {
            "muntin Exact()": lambda _, budget: self.replay.policy(Exact(), budget),
            LANGCHAIN: langchain,
            HUMAN: langchain_human,
            "litellm": litellm,
        }
        for name, make in makers.items():
            cached = self._plans.get(name)
            if cached is None or abs(cached.retained - target) > CLOSE * target:
                try:
                    cached = self._plans[name] = self._search(make, target)
                except ImportError as error:
                    print(f"left out: {error}", file=sys.stderr)
            if cached is not None:
                yield name, cached

    def _search(self, make: Maker, target: float) -> Plans | None:
        """Try budgets until the difference is a tenth of what is allowed, or they are used up."""
        best: Plans | None = None
        low, high = 0, self.budget + 1
        budget = min(self.budget, int(target + self.replay.head))
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

    def _retained(self, plans: Sequence[SentMessages]) -> float:
        tokens = self.sizes.of
        kept = [
            tokens(message)
            for plan in plans
            for message, source in zip(plan.messages, plan.sources, strict=True)
            if source == "history"
        ]
        return sum(kept) / len(plans)

    def _poets(self, target: float, in_front: bool = False) -> list[Plans]:
        """Return prompt-poet's plans with its default step, wider ones, and the widest there is:
        the one that retains as much with the whole budget, and cuts most rarely."""
        widest = bisect_left(
            range(1, 2 * self.budget), -target, key=lambda step: -self._by_poet(self.budget, step)
        )
        results = []
        for step in sorted({*STEPS, widest}):
            by_budget = partial(self._by_poet, step=step)
            budget = bisect_left(range(self.budget + 1), target, key=by_budget)
            if budget <= self.budget:
                policy = poet(self.sizes, budget, step, in_front=in_front)
                plans = [policy(moment) for moment in self.replay.moments]
                results.append(Plans(budget, plans, by_budget(budget), step))
        return results

    def _by_poet(self, budget: int, step: int) -> float:
        """Return what prompt-poet retains, on average."""
        before, moments = self.sizes.before, self.replay.moments
        starts = [poet_start(self.sizes, moment, budget, step) for moment in moments]
        kept = [before[len(m.past)] - before[n] for m, n in zip(moments, starts, strict=True)]
        return sum(kept) / len(kept)

    def same_cuts(self, real: RealPoet, plans: Plans) -> tuple[int, int]:
        """Return of how many requests, evenly chosen, the package cuts where its rule does, and how
        many it was asked for."""
        real.open(self.sizes)
        moments = self.replay.moments[:: max(1, len(self.replay.moments) // ASKED)]
        where = plans.budget, plans.step
        same = [
            poet_cut(self.sizes, moment, *where) == real.cut(self.sizes, moment, *where)
            for moment in moments
        ]
        return sum(same), len(same)


def measure(session: Session) -> Iterator[Row]:
    """Run everybody with equal retention."""
    contest = Contest(session)
    for model, whole in contest.replays.items():
        policy = whole.policy(Stepped())
        planned = [policy(moment) for moment in whole.moments]
        for number, (pause, seconds) in enumerate(session.pauses.items()):
            replay = copy(whole)
            replay.pause = seconds
            own = replay.run(OURS, again(planned))
            place = session.name, pause, model
            yield Row(
                *place,
                OURS,
                session.budget,
                own.retained,
                own.cost,
                read_share=own.read_share,
                steady=steady(own) / whole.history_budget,
            )
            yield from _others(contest, replay, own.retained, place, peers=not number)


def _others(
    contest: Contest, replay: Replay, target: float, place: tuple[str, str, str], *, peers: bool
) -> Iterator[Row]:
    """Yield everybody else; those that trim every turn only where `peers` are wanted."""

    def row(policy: str, plans: Plans) -> Row:
        run = replay.run(policy, again(plans.sent))
        share = run.read_share
        return Row(
            *place, policy, plans.budget, run.retained, run.cost, read_share=share, step=plans.step
        )

    def best(policy: str, *, in_front: bool = False) -> Row:
        rows = [row(policy, plans) for plans in contest.poets(target, in_front)]
        return min(rows, key=lambda each: each.cost)

    for name, plans in contest.peers(target) if peers and contest.session.peers else ():
        yield row(name, plans)
    yield best(BEST_POET)
    optima = {OPTIMUM: False}
    if contest.session.volatile:
        if peers:
            yield best(README_POET, in_front=True)
        yield Row(*place, FLOOR, 0, target, floor(replay, target))
        optima[LENT] = True
    for name, lend in optima.items():
        found = replay.optimum(target, lend=lend)
        yield Row(*place, name, replay.budget, found.retained, found.cost)


def steady(run: PolicyRun) -> float:
    """Return the tokens of history that are kept on average, from the first cut to the last."""
    cuts = [n for n, step in enumerate(run.steps) if (step.cause or "").endswith("trimmed")]
    kept = [step.retained for step in run.steps]
    whole = kept[cuts[0] : cuts[-1]] if len(cuts) > 1 else kept
    return sum(whole) / len(whole)


def floor(replay: Replay, retained: float) -> float:
    """Return what no policy can undercut that keeps so much and sends every message at least once:
    each is written once and read from then on, and what was retrieved is new every time."""
    rules, points = replay.rules, replay.points()
    written = replay.head + points[-1].history
    extra = sum(point.sent - replay.head - point.history for point in points)
    sent = (replay.head + retained) * len(points)
    return rules.write * written + rules.read * (sent - written) + min(1.0, rules.write) * extra
