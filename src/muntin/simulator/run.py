"""Running policies against the cache model: `simulate` and `simulate_trace`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeAlias

from muntin.core.budget import Budget, as_budget
from muntin.core.caching.prefix import Pieces, find_difference
from muntin.core.checks import shown
from muntin.core.counting.counter import TokenizerLike
from muntin.core.planning.compact import LADDER, Ladder, as_shapes
from muntin.core.planning.slot import Exact, MessageLike, Stepped, Trimming
from muntin.core.profile import Caching, Profile, as_profile
from muntin.core.schemas import Schemas
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType
from muntin.providers.names import caching_for, prices_of
from muntin.simulator.cache import Cache, Request
from muntin.simulator.optimum import Optimum, Point, optimum
from muntin.simulator.replay import (
    RETRIEVAL_RATIO,
    Moment,
    Policy,
    Trace,
    UserPolicy,
    full_policy,
    slots_policy,
    trace_of,
    user_policy,
)
from muntin.simulator.requests import Blocks, marks_of, usual_marks
from muntin.simulator.result import PolicyRun, RequestCost, Simulation

PolicyLike: TypeAlias = str | Trimming | UserPolicy

# The slots of a request beside the conversation itself.
_BESIDE = frozenset({"tools", "system", "lead", "retrieval", "joined"})
PAUSE = 30.0
_NEAR = 0.9

# Seconds between two requests: one number, or several that are repeated in turn.
Pause: TypeAlias = float | Sequence[float]


def simulate(
    windows: Iterable[Window],
    profile: Profile | str,
    *,
    caching: Caching | None = None,
    tokenizer: TokenizerLike | None = None,
    pause: Pause = PAUSE,
    history: Sequence[str] = ("history", "input"),
) -> Simulation:
    """Return what the provider would have read from its cache and charged for these windows.

    They are sent one after another, `pause` seconds apart (several pauses are repeated in turn).
    `history` names the slots that hold the conversation. Windows that were planned without
    breakpoints are marked as by automatic caching; if the planner could have set breakpoints and
    set none, there are none.
    """
    profile, rules = _with_rules(profile, caching)
    blocks = Blocks(profile, tokenizer)
    sender = _Sender(rules, pause)
    for turn, window in enumerate(windows):
        request = blocks.of_window(window)
        retained = sum(block.tokens for block in request.blocks if block.source in history)
        sender.send(turn, request, _marks(window, request, rules), retained)
    run = PolicyRun("windows", tuple(sender.steps))
    return Simulation((run,), rules, model=profile.name, dollars=_input_price(profile.name))


def simulate_trace(
    messages: Sequence[MessageLike],
    *,
    budget: Budget | int,
    model: Profile | str,
    policies: Sequence[PolicyLike] | Mapping[str, PolicyLike] = ("exact", "stepped", "full"),
    steps: bool = False,
    volatile: Sequence[str | None] = (),
    tools: Sequence[Mapping[str, Any]] = (),
    caching: Caching | None = None,
    tokenizer: TokenizerLike | None = None,
    pause: Pause = PAUSE,
    best: bool = True,
    ladder: Ladder | bool | None = LADDER,
) -> Simulation:
    """Replay a recorded conversation under several policies, side by side.

    A policy is `"exact"`, `"stepped"`, `"full"`, a trimming such as `Stepped(low=0.6)`, or a
    function of the whole conversation and the budget that returns the messages to send. One request
    is sent a turn, or with `steps` one before each answer of the model. `volatile` are texts, one a
    turn and repeated, that come after the conversation and are dropped after their turn.
    Requests are `pause` seconds apart; several pauses are repeated in turn. With `best`, every cost
    is compared with the offline optimum, which drops turns whole; tool results that become shorter
    by the `ladder` can cost less.
    """
    trace = trace_of(messages, volatile)
    profile, rules = _with_rules(model, caching)
    tokens = as_budget(budget).remaining_input_tokens
    replay = Replay(
        trace,
        tokens,
        profile=profile,
        rules=rules,
        tokenizer=tokenizer,
        tools=tools,
        steps=steps,
        pause=pause,
        ladder=as_shapes("simulate_trace", None, ladder)[1],
    )
    runs = []
    for name, policy in (policies if isinstance(policies, Mapping) else _named(policies)).items():
        run = replay.run(name, replay.policy(policy))
        runs.append(replay.with_best(run) if best and policy != "full" else run)
    return Simulation(
        tuple(runs), rules, model=profile.name, budget=tokens, dollars=_input_price(profile.name)
    )


@dataclass(slots=True)
class Replay:
    """A prepared trace: its requests, and what they would be for any policy."""

    trace: Trace
    budget: int
    profile: Profile = field(kw_only=True)
    rules: Caching = field(kw_only=True)
    tokenizer: TokenizerLike | None = field(default=None, kw_only=True)
    tools: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)
    steps: bool = field(default=False, kw_only=True)
    pause: Pause = field(default=PAUSE, kw_only=True)
    ladder: Ladder | None = field(default=LADDER, kw_only=True)
    blocks: Blocks = field(init=False)
    moments: list[Moment] = field(init=False)
    # The tokens of tools and system text, which are in front of every request.
    head: int = field(init=False)
    history_budget: int = field(init=False)
    _ends: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = Blocks(self.profile, self.tokenizer)
        self.tools = Schemas.of(self.tools)
        self.moments = list(self.trace.moments(steps=self.steps))
        tools_tokens = self.blocks.counter.beside(self.tools)
        self.head = tools_tokens + sum(map(self.blocks.tokens, self.trace.system))
        self._ends = [0, *accumulate(map(self.blocks.tokens, self.trace.messages))]
        # Ceilings are shares of the room that the tools leave.
        ceiling = (
            int((self.budget - tools_tokens) * RETRIEVAL_RATIO) if any(self.trace.volatile) else 0
        )
        self.history_budget = max(1, self.budget - self.head - ceiling)
        for number, text in enumerate(self.trace.volatile):
            if text is not None and self.blocks.tokens(text) > ceiling:
                raise InvalidInput(
                    f"volatile text {number} has {self.blocks.tokens(text):,} tokens, but only a "
                    f"quarter of the budget ({ceiling:,}) is kept for it; shorten it"
                )

    def policy(self, policy: PolicyLike, budget: int | None = None) -> Policy:
        """Return the policy that `policy` names; `budget` is the replay's if not given."""
        budget = self.budget if budget is None else budget
        if policy == "full":
            return full_policy
        if isinstance(policy, str):
            if policy not in _TRIMMINGS:
                raise InvalidInput(
                    f"unknown policy {shown(policy)}; use 'exact', 'stepped', 'full', a trimming "
                    "or a function"
                )
            policy = _TRIMMINGS[policy]
        if callable(policy):
            return user_policy(policy, budget)
        return slots_policy(
            policy,
            budget,
            profile=self.profile,
            tokenizer=self.tokenizer,
            tools=self.tools,
            ladder=self.ladder,
        )

    def run(self, name: str, policy: Policy) -> PolicyRun:
        """Send the requests of the policy, one by one."""
        sender = _Sender(self.rules, self.pause)
        for moment in self.moments:
            sent = policy(moment)
            request = self.blocks.of(sent.messages, sent.sources, self.tools)
            # What stands before the text that is gone in the next request.
            stable = len(request.blocks)
            retained = 0
            for number, block in enumerate(request.blocks):
                if block.source == "retrieval":
                    stable = min(stable, number)
                if block.source not in _BESIDE:
                    retained += block.tokens
            most = min(self.history_budget, self._ends[len(moment.past)])
            marks = _marks(sent.window, request, self.rules, stable)
            share = min(1.0, retained / max(1, most))
            sender.send(moment.turn, request, marks, retained, share, stable)
        return PolicyRun(name, tuple(sender.steps))

    def with_best(self, run: PolicyRun) -> PolicyRun:
        """Compare a run with the offline optimum at its retention, if that is possible."""
        best = self.optimum(run.retained, lend=True)
        # Whole turns cannot always keep as much as single messages, and a user's own policy may
        # keep more than the budget.
        equal = best.retained >= _NEAR * run.retained
        # The optimum writes every request; a policy that expects no read does not.
        cost = min(best.cost, run.cost)
        return PolicyRun(run.policy, run.steps, best=cost if equal else None)

    def optimum(self, retained: float, *, lend: bool = False) -> Optimum:
        """Return the offline optimum that retains as many tokens on average.

        It has only the history's budget; with `lend`, also the room that volatile text leaves.
        """
        return optimum(self.points(lend=lend), self.starts(), self.head, self.rules, retained)

    def points(self, *, lend: bool = False) -> list[Point]:
        """Return the requests as points for the optimum."""
        points: list[Point] = []
        shared = 0
        for number, moment in enumerate(self.moments):
            history = self._ends[len(moment.past)]
            extra = self.blocks.tokens(moment.volatile) if moment.volatile else 0
            sent = self.head + history + extra
            # Without marks the provider caches all of it.
            cached = self.head + history if self.rules.breakpoints else sent
            expired = _gap(self.pause, number) > self.rules.ttl
            limit = self.budget if lend else self.head + self.history_budget + extra
            points.append(Point(moment.turn, sent, shared, cached, history, limit, expired=expired))
            shared = self.head + history
        return points

    def starts(self) -> list[int]:
        """Return how many tokens of the conversation stand before each turn."""
        return [self._ends[turn] if number else 0 for number, turn in enumerate(self.trace.turns)]


class _Sender:
    """Sends requests to the cache model, and keeps the cost of each."""

    def __init__(self, rules: Caching, pause: Pause) -> None:
        for seconds in pause if isinstance(pause, Sequence) and pause else (pause,):
            if not isinstance(seconds, int | float) or not seconds >= 0:  # NaN is not
                raise InvalidInput(
                    f"pause must be a number of seconds, at least 0, got {shown(seconds)}"
                )
        self.steps: list[RequestCost] = []
        self._cache = Cache(rules)
        self._rules = rules
        self._pause = pause
        self._at = 0.0
        self._before: Pieces = ()

    def send(
        self,
        turn: int,
        request: Request,
        marks: tuple[int, ...],
        retained: int,
        share: float | None = None,
        stable: int | None = None,
    ) -> None:
        """Send one request and keep its cost; only the first `stable` blocks may come again."""
        gap = _gap(self._pause, len(self.steps))
        self._at += gap
        usage = self._cache.send(replace(request, marks=marks, at=self._at))
        # A user message that leads has no slot.
        both = zip(request.blocks, request.places, strict=True)
        placed = [(block, place) for block, place in both if block.source != "lead"]
        difference = find_difference(
            [(block.key, block.source) for block, _ in placed], self._before
        )
        diverged = cause = None
        if difference is not None:
            cause = f"{difference.slot} {difference.reason}"
            if difference.place < len(placed):
                diverged = placed[difference.place][1]
            else:
                diverged = max((place for _, place in placed), default=-1) + 1
        elif self.steps and not usage.read:
            cause = "expired" if gap > self._rules.ttl else "not cached"
        costs = usage.read, usage.written, usage.uncached, usage.cost
        self.steps.append(RequestCost(*costs, turn, retained, share, diverged, cause))
        lasting = request.blocks[:stable]
        self._before = [(block.key, block.source) for block in lasting if block.source != "lead"]


def _marks(
    window: Window | None, request: Request, rules: Caching, stable: int | None = None
) -> tuple[int, ...]:
    """Return the marks of a request: its window's, or the usual ones where none could be set."""
    marks = () if window is None else marks_of(window, request)
    takes_marks = window is not None and window.caching is not None and window.caching.breakpoints
    return marks if marks or takes_marks else usual_marks(request, rules, stable)


def _gap(pause: Pause, number: int) -> float:
    """Return the seconds between a request and the one before it."""
    if number == 0:
        return 0.0
    return pause[(number - 1) % len(pause)] if isinstance(pause, Sequence) else pause


def _named(policies: Sequence[PolicyLike]) -> dict[str, PolicyLike]:
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise InvalidType(f"policies must be a list or a mapping, not {shown(policies)}")
    named: dict[str, PolicyLike] = {}
    for policy in policies:
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", repr(policy))
        if name in named:
            raise InvalidInput(f"two policies are called {name!r}; give a mapping of names")
        named[name] = policy
    return named


_TRIMMINGS: dict[str, Trimming] = {"exact": Exact(), "stepped": Stepped()}


def _with_rules(model: Profile | str, caching: Caching | None) -> tuple[Profile, Caching]:
    """Return the profile and its rules: given, or the profile's, or the model's by name."""
    profile = as_profile(model)
    if profile is None:
        raise InvalidType("a simulation needs a Profile or a model such as 'openai/gpt-5'")
    if caching is None:
        caching = caching_for(model) if isinstance(model, str) else profile.caching
    if caching is None:
        raise InvalidInput(
            f"no caching rules are known for {profile.name!r}; pass caching=Caching(...)"
        )
    return replace(profile, caching=caching), caching


def _input_price(model: str) -> float | None:
    prices = prices_of(model)
    return None if prices is None else prices[0]
