"""`fit`: a list of messages in, those of it that fit out, as the objects they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from muntin.agent.tools import ToolLike
from muntin.core.budget import Budget
from muntin.core.checks import shown
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.shapes import LADDER, RESULTS, Ladder, Results
from muntin.core.planning.slot import Trimming
from muntin.core.planning.window import Window
from muntin.core.report import Report
from muntin.errors import InvalidType, MuntinError
from muntin.fitting.fitter import Fitter
from muntin.fitting.pieces import Fitted, Placed
from muntin.fitting.reading import NotSingle, pieces_of
from muntin.fitting.recorder import Recorder
from muntin.fitting.writing import written
from muntin.timeline.store import Store


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """What of a list fits: `kept` are its own objects, and new ones of their form for the few that
    were shortened or added."""

    kept: list[Any]
    fitted: Fitted

    def __repr__(self) -> str:
        return f"<FittedMessages kept={len(self.kept)} tokens={self.tokens}>"

    @property
    def frontier(self) -> dict[str, Any]:
        """Plain JSON, to be given as `previous` with the next request."""
        return self.fitted.frontier

    @property
    def placed(self) -> tuple[Placed, ...]:
        """What is sent, in order, with the references."""
        return self.fitted.placed

    @property
    def window(self) -> Window:
        """The window as it was planned."""
        return self.fitted.window

    @property
    def report(self) -> Report:
        """Where every token went, and why something is missing."""
        return self.fitted.window.report

    @property
    def tokens(self) -> int:
        """What the request has, tools and all."""
        return self.fitted.window.tokens

    @property
    def unread(self) -> tuple[str, ...]:
        """What could not be read and was carried as it is."""
        return self.fitted.unread

    @property
    def fresh(self) -> str | None:
        """Why the frontier that was given was not used."""
        return self.fitted.fresh


def fit(
    messages: Sequence[Any],
    budget: Budget | int | None = None,
    *,
    model: str | None = None,
    tools: Sequence[ToolLike] = (),
    system: str | Sequence[Message | Mapping[str, Any]] | None = None,
    previous: Mapping[str, Any] | Frontier | None = None,
    margin: int = 0,
    strict: bool = False,
    tokenizer: TokenizerLike | None = None,
    attachment_tokens: AttachmentTokens | None = None,
    trimming: Trimming | None = None,
    results: Results | bool | None = RESULTS,
    ladder: Ladder | bool | None = LADDER,
    conversation: str | None = None,
    store: Store | str | Recorder | None = None,
) -> FittedMessages:
    """Return what of a list of messages fits a budget.

    Messages are dicts or objects of an SDK, in the form of any provider. `system` is text that is
    sent beside them. Give the `frontier` of each request as `previous` with the next one: the
    requests then begin alike, and the provider's cache is of use. Without it, a conversation is
    found again as long as the process lives. All else is as for `Fitter`.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidType(f"messages must be a list, not {shown(messages)}")
    fitter = _fitter(
        budget,
        model=model,
        tokenizer=tokenizer,
        attachment_tokens=attachment_tokens,
        trimming=trimming,
        results=results,
        ladder=ladder,
        margin=margin,
        strict=strict,
        store=store,
    )
    told = _told(system)
    given: dict[str, Any] = {"previous": previous, "conversation": conversation}
    try:
        # Most lists are of single messages; to be sure of it, all of them would have to be read.
        fitted = fitter.fit(pieces_of(messages, single=True), tools=tools, system=told, **given)
    except NotSingle:
        fitted = fitter.fit(pieces_of(messages), tools=tools, system=told, **given)
    return FittedMessages(written(messages, fitted.placed), fitted)


def _told(system: str | Sequence[Message | Mapping[str, Any]] | None) -> list[Message]:
    """Return system text that is sent beside a list: a text, messages, or Anthropic's blocks."""
    if system is None or isinstance(system, str):
        return [Message("system", system)] if system else []
    if isinstance(system, bytes | Mapping) or not isinstance(system, Sequence):
        raise InvalidType(f"system must be a text or a list of messages, not {shown(system)}")
    blocks = [{"role": "system", "content": [e]} if _is_block(e) else e for e in system]
    return messages_from(blocks, where="system[{}]")


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" not in value


@lru_cache(maxsize=64)
def _known(budget: Budget | int | None, **given: Any) -> Fitter:
    return Fitter(budget, **given)


def _fitter(budget: Budget | int | None, **given: Any) -> Fitter:
    """Return the Fitter with these settings: one for all who ask for it, if they can be compared,
    so that it finds conversations again."""
    try:
        return _known(budget, **given)
    except TypeError as error:
        if isinstance(error, MuntinError):
            raise
        return Fitter(budget, **given)
