"""Every error Muntin raises, split by who must act.

    MuntinError
    ├── InvalidInput (also a ValueError)   the caller's value is wrong; the message names it
    │   ├── UnknownModel                   no context window is known for this model
    │   └── PromptFileError                a prompt file is wrong, or cannot be rendered
    ├── TokenizerError                     the tokenizer in use failed or returned nonsense
    ├── MissingExtra (also an ImportError) an optional dependency is not installed
    ├── StoreError                         a store cannot be opened, read or written
    │   └── TurnLost                       another process has taken over the turn
    └── BudgetExceeded                     what may not be dropped does not fit

A value of the wrong type is reported as `InvalidType`, an `InvalidInput` that is also a
`TypeError`, so that both habits of catching work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.core.report import Report


class MuntinError(Exception):
    """The root of all errors that Muntin raises on purpose."""


class InvalidInput(MuntinError, ValueError):
    """A value handed to Muntin is out of range or malformed."""


class InvalidType(InvalidInput, TypeError):
    """A value handed to Muntin has the wrong type."""


class UnknownModel(InvalidInput):
    """Nothing is known about this model; pass a `Budget` instead."""


class PromptFileError(InvalidInput):
    """A prompt file is malformed, or rendering it failed.

    `file` is the file at fault (the prompt file or a partial), `line` counts from 1 and is None
    where no line can be named, `reason` is the message without them.
    """

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        super().__init__(f"{file}:{line}: {reason}" if line is not None else f"{file}: {reason}")

    def __reduce__(self) -> tuple[type[PromptFileError], tuple[str, int | None, str]]:
        return type(self), (self.file, self.line, self.reason)


class TokenizerError(MuntinError):
    """A tokenizer raised, or returned something that is not a count."""


class MissingExtra(MuntinError, ImportError):
    """An optional dependency is missing; the message says what to install."""


class BudgetExceeded(MuntinError):
    """What may not be dropped does not fit into the budget.

    `needed` and `available` are tokens; `report` is the plan so far.
    """

    def __init__(self, needed: int, available: int, report: Report) -> None:
        self.needed = needed
        self.available = available
        self.report = report
        names = [repr(slot.name) for slot in report.slots if slot.tokens_kept]
        stuck = ", ".join([*names, "the tools"] if report.tools_tokens else names)
        super().__init__(
            f"the window needs {needed:,} tokens but only {available:,} are available; "
            f"what could not shrink further: {stuck or 'nothing was left'}. "
            "Raise the budget, shorten these, or pass strict=False to encode it anyway."
        )

    def __reduce__(self) -> tuple[type[BudgetExceeded], tuple[int, int, Report]]:
        return type(self), (self.needed, self.available, self.report)


class StoreError(MuntinError):
    """A store cannot be opened, read or written; the message names it and says what to do."""


class TurnLost(StoreError):
    """Another process has taken over the turn; nothing was written."""

    def __init__(self, session: str, turn: int) -> None:
        self.session = session
        self.turn = turn
        super().__init__(
            f"turn {turn} of session {session!r} is no longer ours: its lease ran out, and another "
            "process has taken it over"
        )

    def __reduce__(self) -> tuple[type[TurnLost], tuple[str, int]]:
        return type(self), (self.session, self.turn)
