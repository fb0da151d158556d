"""`fit`: a list of messages goes in, the messages that fit come out, as the same objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from muntin.agent.tools import ToolLike
from muntin.core.budget import Budget
from muntin.core.caching.frontier import Frontier
from muntin.core.checks import shown
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.core.planning.compact import LADDER, RESULTS, Ladder, Results
from muntin.core.planning.slot import Trimming
from muntin.core.profile import Profile
from muntin.core.report import Report
from muntin.core.window import Window
from muntin.errors import InvalidType, MuntinError
from muntin.fitting.fitter import Fitter
from muntin.fitting.recorder import Recorder
from muntin.timeline.recall.settings import RecallLike
from muntin.timeline.store import Store
from muntin.wire.lists import NotSingle, pieces_of, write_items
from muntin.wire.pieces import Fitted, Placed
from muntin.wire.usage import UsageLike, as_usage


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """The messages of a list that fit: `kept` are its own objects, and new objects of the same form
    for the few messages that were shortened or added."""

    kept: list[Any]
    fitted: Fitted

    def __repr__(self) -> str:
        return f"<FittedMessages kept={len(self.kept)} tokens={self.tokens}>"

    @property
    def frontier(self) -> dict[str, Any]:
        """Plain JSON, to be passed as `previous` with the next request."""
        return self.fitted.frontier

    @property
    def placed(self) -> tuple[Placed, ...]:
        """The messages that are sent, in order, with the references."""
        return self.fitted.placed

    @property
    def folded(self) -> tuple[Message, ...]:
        """The later system messages that have left with their turns, for a model that takes them
        inside of a conversation: send their texts at the end of the system text."""
        return self.fitted.folded

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
        """The tokens of the request, tools included."""
        return self.fitted.window.tokens

    @property
    def unread(self) -> tuple[str, ...]:
        """The items that could not be read and are sent unchanged."""
        return self.fitted.unread

    @property
    def fresh(self) -> str | None:
        """Why the given frontier was not used; None if it was used, or none was given."""
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
    usage: UsageLike | None = None,
    recall: RecallLike = False,
) -> FittedMessages:
    """Return the messages of a list that fit a budget.

    Messages are dicts or objects of an SDK, in the form of any provider. `system` is text that is
    sent beside them. Pass the `frontier` of each request as `previous` with the next one: then the
    requests begin alike, and the provider's cache can be used. Without it, a conversation is found
    again as long as the process lives. `usage` is what the provider reported of the newest answer
    in the list: what follows is counted by it. All other arguments are as for `Fitter`.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidType(f"messages must be a list, not {shown(messages)}")
    fitter = _fitter_for(
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
        recall=recall,
    )
    system_messages = _read_system(system)
    profile = Profile.of(model) if isinstance(model, str) else None
    options: dict[str, Any] = {
        "previous": previous,
        "conversation": conversation,
        "usage": as_usage(usage),
        "folds": profile is not None and profile.mid_system,
    }
    try:
        # In most lists each item is one message; checking would mean reading all of them.
        fitted = fitter.fit(
            pieces_of(messages, single=True), tools=tools, system=system_messages, **options
        )
    except NotSingle:
        fitted = fitter.fit(pieces_of(messages), tools=tools, system=system_messages, **options)
    return FittedMessages(write_items(messages, fitted.placed), fitted)


def _read_system(system: str | Sequence[Message | Mapping[str, Any]] | None) -> list[Message]:
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
def _shared_fitter(budget: Budget | int | None, **options: Any) -> Fitter:
    return Fitter(budget, **options)


def _fitter_for(budget: Budget | int | None, **options: Any) -> Fitter:
    """Return the Fitter with these settings. Equal settings share one Fitter, so that it finds
    conversations again."""
    try:
        return _shared_fitter(budget, **options)
    except TypeError as error:
        if isinstance(error, MuntinError):
            raise
        return Fitter(budget, **options)
