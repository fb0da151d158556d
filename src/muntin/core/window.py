"""The window: the composed messages, where they come from, and why they were kept.

Turning it into a provider's request or a picture is the work of upper layers, imported late.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol

from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.checks import shown
from muntin.core.counting.book import CountedRequest
from muntin.core.message import Message, as_message
from muntin.core.parts import File
from muntin.core.planning.slot import Slot
from muntin.core.profile import Caching
from muntin.core.report import NotCarried, Report, Reported, Status, in_ranges
from muntin.errors import InvalidInput

if TYPE_CHECKING:
    from muntin.core.toolboxes.finding import WindowSearch


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A place where the provider may cache: after `after` messages, for `ttl`."""

    after: int
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What became of one message of a slot, or of `count` messages that were not read.

    `shown` is the message as the window has it: None if it was left out, and the slot's own text
    where several were joined.
    """

    slot: Slot
    first: int
    count: int
    status: Status
    reason: str | None
    shown: Message | None = None

    def declared(self, number: int = 0) -> Message:
        """Return one of the messages as it was declared."""
        return as_message(self.slot.messages[self.first + number])


class WindowPlan(Protocol):
    """A plan, as the object that can explain how a window was made."""

    def report(self, *, as_stored: bool = False) -> Report:
        """Tell where every token went; with `as_stored`, in the form that is stored."""

    def fates(self) -> tuple[MessageOutcome, ...]:
        """Tell what became of every declared message."""

    @property
    def caching(self) -> Caching | None:
        """The rules of caching that the model has."""

    @property
    def tool_search(self) -> WindowSearch | None:
        """The search for the tools of toolboxes, if they are searched."""


@dataclass(frozen=True, slots=True)
class _PickledPlan:
    """What a pickled window keeps of its plan: the report."""

    whole_report: Report
    caching: Caching | None = None

    def report(self, *, as_stored: bool = False) -> Report:
        return in_ranges(self.whole_report) if as_stored else self.whole_report

    def fates(self) -> tuple[MessageOutcome, ...]:
        return ()

    @property
    def tool_search(self) -> None:
        return None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Window:
    """The composed messages of one turn, with their tokens and the report that explains them.

    `tokens` is everything that is sent: messages, tool schemas and what the wire adds.
    `input_cut` says that the current input was too long and lost its middle.
    `origins` says for each message the index of the slot it comes from (None: a slot cannot be
    named, because several were joined).
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = field(hash=False)
    tokens: int
    over_budget: bool
    input_cut: bool
    origins: tuple[int | None, ...]
    breakpoints: tuple[Breakpoint, ...]
    explained: WindowPlan = field(compare=False)
    lazy_frontier: LazyFrontier | Frontier = field(compare=False)
    # What requests made of the window could not carry, by provider.
    _ledger: dict[str, tuple[NotCarried, ...]] = field(default_factory=dict, compare=False)
    # What the provider said of the request, once it has answered.
    _reported: list[Reported] = field(default_factory=list, compare=False)

    def __repr__(self) -> str:
        return f"<Window messages={len(self.messages)} tokens={self.tokens}>"

    @property
    def report(self) -> Report:
        """Where every token went, and why something is missing."""
        # Made on first use: most windows are sent, and no report is read.
        return self._with_entered_facts(self.explained.report())

    @property
    def kept_report(self) -> Report:
        """The report as it is stored: neighbours with the same fate become one decision."""
        return self._with_entered_facts(self.explained.report(as_stored=True))

    def _with_entered_facts(self, report: Report) -> Report:
        """Return a report with the facts that were entered after the window was planned."""
        if self._ledger:
            report = replace(report, not_carried=tuple(chain(*self._ledger.values())))
        if self._reported and report.prefix is not None and self.caching is not None:
            report = replace(report, prefix=replace(report.prefix, reported=self._reported[-1]))
        if self._reported:
            counts = replace(report.counts, reported=self._reported[-1].input)
            report = replace(report, counts=counts)
        return report

    @property
    def frontier(self) -> Frontier:
        """What the next turn must know of this one; store it with the session."""
        lazy = self.lazy_frontier
        return lazy if isinstance(lazy, Frontier) else lazy.frontier

    @property
    def fates(self) -> tuple[MessageOutcome, ...]:
        """What became of every declared message, slot by slot; empty for a pickled window."""
        return self.explained.fates()

    @property
    def tool_search(self) -> WindowSearch | None:
        """The search for the tools of toolboxes, for a loop of one's own: it answers `find_tools`
        and reads `call_tool`. None if all tools are declared, and for a pickled window."""
        return self.explained.tool_search

    @property
    def caching(self) -> Caching | None:
        """The rules of caching that the window was planned for, if there are any."""
        return self.explained.caching

    @property
    def counted(self) -> CountedRequest | None:
        """The size of the request, for the book of counts; None for a pickled window."""
        lazy = self.lazy_frontier
        return lazy.counted if isinstance(lazy, LazyFrontier) else None

    def enter_not_carried(self, provider: str, entries: tuple[NotCarried, ...]) -> None:
        """Put what a request could not carry into the report, for the provider."""
        self._ledger.pop(provider, None)
        if entries:
            self._ledger[provider] = entries

    def enter_reported(self, reported: Reported) -> None:
        """Put what the provider said of the request beside the report's own claim."""
        self._reported[:] = [reported]
        if isinstance(self.lazy_frontier, LazyFrontier):
            self.lazy_frontier.enter_reported(reported.input)

    def openai(
        self,
        *,
        api: Literal["chat", "responses"] = "chat",
        strict: bool = True,
        files: Mapping[str, File] | None = None,
    ) -> dict[str, Any]:
        """Return the keyword arguments of an OpenAI call: Chat Completions or Responses.

        `files` maps the id of an attachment to the file that is sent for it. Raises
        `BudgetExceeded` if the window is over budget, unless `strict` is False. What the API
        cannot carry is listed in `report.not_carried`.
        """
        from muntin.wire import chat, responses

        encoders = {"chat": chat.encode, "responses": responses.encode}
        if api not in encoders:
            raise InvalidInput(f"unknown api {shown(api)}; use {', '.join(encoders)}")
        return encoders[api](self, strict=strict, files=files)

    def anthropic(
        self, *, strict: bool = True, files: Mapping[str, File] | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments of an Anthropic Messages call; see `openai`."""
        from muntin.wire.anthropic import encode

        return encode(self, strict=strict, files=files)

    def google(
        self, *, strict: bool = True, files: Mapping[str, File] | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments of a Google `generate_content` call; see `openai`."""
        from muntin.wire.google import encode

        return encode(self, strict=strict, files=files)

    def fits_with(self, slot: str, message: int = 0) -> int | None:
        """Return how many more tokens of budget would show a message of a slot whole: 0 if it is
        whole, None if no budget would."""
        plan = self.explained
        if not hasattr(plan, "fits_with"):
            raise InvalidInput("a window that was pickled has forgotten its plan; compose it again")
        more: int | None = plan.fits_with(slot, message)
        return more

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the window as one HTML file: the bar, the table of slots, what was left out."""
        from muntin.view.html import page

        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(page(self))

    def _repr_html_(self) -> str:
        from muntin.view.html import html

        return html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Window, (
            self.messages,
            self.tools,
            self.tokens,
            self.over_budget,
            self.input_cut,
            self.origins,
            self.breakpoints,
            _PickledPlan(self.explained.report(), self.caching),
            self.frontier,
            dict(self._ledger),
            list(self._reported),
        )
