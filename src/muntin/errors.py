"""Every error Muntin raises, split by who must act.

    MuntinError
    ├── InvalidInput (also a ValueError)   the caller's value is wrong; the message names it
    │   ├── UnknownModel                   no such provider, or nothing is known about the model
    │   └── PromptFileError                a prompt file is wrong, or cannot be rendered
    ├── TokenizerError                     the tokenizer in use failed or returned nonsense
    ├── MissingExtra (also an ImportError) an optional dependency is not installed
    ├── StoreError                         a store cannot be opened, read or written
    │   └── TurnLost                       another process has taken over the turn
    ├── TurnEnded                          the turn is over: its ctx can write no more
    ├── Deadlock                           something would wait for itself
    ├── Overloaded                         more waits for an entity or an app than may
    ├── TimedOut (also a TimeoutError)     a handler or a function took too long
    ├── BudgetExceeded                     what may not be dropped does not fit
    ├── StrategyError                      a hook of a strategy failed or took too long
    ├── StepLimit                          an agent's run took as many steps as it may
    ├── OutputInvalid                      the model's answer is not of the form asked for
    ├── UnknownAsset (also a KeyError)     no asset is stored under this id
    └── ProviderError                      the model did not answer
        ├── AuthenticationFailed           the key is missing, wrong, or not allowed to do this
        ├── RequestRefused                 the request is wrong: window, settings or model name
        │   └── ContextTooLong             the window is larger than the model's
        ├── RateLimited                    too many requests, or no credit left: wait
        ├── ProviderUnavailable            the provider failed, was not reached, or was too slow
        └── BadResponse                    the answer cannot be read

A value of the wrong type is reported as `InvalidType`, an `InvalidInput` that is also a
`TypeError`, so that both habits of catching work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol


# All other modules import this one, so the objects that errors carry are protocols here.
class ReportLike(Protocol):
    """The part of the `Report` of a window that an error shows."""

    @property
    def slots(self) -> Sequence[Any]: ...
    @property
    def tokens(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def tools_tokens(self) -> int: ...
    @property
    def joined_tokens(self) -> int: ...
    @property
    def lead_tokens(self) -> int: ...
    @property
    def answer_tokens(self) -> int: ...
    @property
    def provider_tokens(self) -> int: ...
    @property
    def over_limit(self) -> str | None: ...
    def __getitem__(self, name: str, /) -> Any: ...
    def to_dict(self) -> Mapping[str, Any]: ...


class ReplyLike(Protocol):
    """The part of a model's `Reply` that an error shows."""

    @property
    def message(self) -> Any: ...
    @property
    def text(self) -> str: ...
    @property
    def tool_calls(self) -> Sequence[Any]: ...
    @property
    def usage(self) -> Any: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def window(self) -> Any: ...


# An error says what is wrong and what to do; it must not hold a whole file or conversation.
_LONGEST = 4_000


class MuntinError(Exception):
    """The root of all errors that Muntin raises on purpose; a long text is cut in its middle."""

    # The text for a model, where the error's own text is written for developers.
    _fact: ClassVar[str | None] = None

    def __init__(self, *args: object) -> None:
        super().__init__(*(_bound_text(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Any, ...]:
        # From its text and its attributes: the constructors of subclasses take something else.
        return _restore_error, (type(self), self.args), self.__dict__

    @property
    def fact(self) -> str:
        """What happened, without advice: the text for a model about a turn that failed."""
        return str(self) if self._fact is None else self._fact


def _restore_error(kind: type[MuntinError], args: tuple[object, ...]) -> MuntinError:
    error = kind.__new__(kind)
    error.args = args
    return error


def _bound_text(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} […{len(text) - 2 * half:,} characters…] {text[-half:]}"


def error_text(error: BaseException) -> str:
    """Return an error as a timeline keeps it for people: in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


def error_fact(error: BaseException) -> str:
    """Return an error as text for a model: in one line, without advice."""
    text = error.fact if isinstance(error, MuntinError) else error
    return f"{type(error).__name__}: {text}".partition("\n")[0][:500]


class InvalidInput(MuntinError, ValueError):
    """A value handed to Muntin is out of range or malformed."""

    _fact = "something that was given cannot be used"


class InvalidType(InvalidInput, TypeError):
    """A value handed to Muntin has the wrong type."""


class NeedsConversation(InvalidInput):
    """A value read as one message means several, or means nothing without earlier messages.

    `messages_from` reads such values.
    """


class UnknownModel(InvalidInput):
    """No provider has this name, or nothing is known about this model."""


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


class TokenizerError(MuntinError):
    """A tokenizer raised, or returned something that is not a count.

    `culprit` is the message that could not be counted, if it was a message.
    """

    _fact = "tokens could not be counted"
    culprit: object = None


class MissingExtra(MuntinError, ImportError):
    """An optional dependency is missing; the message says what to install."""

    _fact = "something that is needed is not installed"


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Import optional packages in the block; where one is missing, raise `MissingExtra(what)`."""
    try:
        yield
    except ModuleNotFoundError:
        raise MissingExtra(what) from None  # the ImportError adds nothing
    except ImportError as error:  # installed, but too old or broken: the cause says so
        raise MissingExtra(what) from error


def _parts(needed: int, report: ReportLike) -> str:
    """Name the parts of a window, with tokens that add up to `needed`."""
    parts = [(repr(slot.name), slot.tokens_kept) for slot in report.slots]
    details = {repr(slot.name): slot.detail for slot in report.slots if slot.detail}
    parts += [
        ("the tools", report.tools_tokens),
        ("what joins texts", report.joined_tokens),
        ("the user message that must come first", report.lead_tokens),
        ("the frame of the answer", report.answer_tokens),
        ("what the provider adds", report.provider_tokens),
    ]
    parts.append(("the rest of the request", needed - sum(tokens for _, tokens in parts)))
    return ", ".join(
        f"{name} {tokens:,}" + (f" ({details[name]})" if name in details else "")
        for name, tokens in parts
        if tokens
    )


class BudgetExceeded(MuntinError):
    """The parts that may not be dropped do not fit into the budget.

    `needed` and `available` are tokens; `report` is the plan so far; `why` replaces the text.
    """

    _fact = "what had to be shown did not fit into the context window"

    def __init__(
        self, needed: int, available: int, report: ReportLike, why: str | None = None
    ) -> None:
        self.needed = needed
        self.available = available
        self.report = report
        self.why = why
        if report.over_limit is not None:
            text = (
                f"the provider takes at most {report.over_limit}. Send fewer or smaller images and "
                "files, or begin a new conversation."
            )
        elif why is not None:
            text = why
        elif needed > available:
            text = (
                f"the window needs {needed:,} tokens but only {available:,} are available; "
                f"what could not shrink further: {_parts(needed, report)}. "
                "Raise the budget or shorten these."
            )
        else:
            sizes = ", ".join(
                f"{slot.name!r} {slot.tokens_asked:,}" for slot in report.slots if slot.tokens_asked
            )
            text = (
                f"a window of {available:,} tokens has room for nothing; "
                f"the slots ask for: {sizes}. Raise the budget."
            )
        super().__init__(text)


class StoreError(MuntinError):
    """A store cannot be opened, read or written; the message names it and says what to do.

    With `passing`, the same call may work later: the server is away, the disk is full. With `away`,
    the server could not be reached, or dropped the connection. With `in_doubt`, the connection
    broke during the commit, and the write may or may not be stored.
    """

    _fact = "the conversation could not be read or stored"
    passing = False
    away = False
    in_doubt = False


class TurnLost(StoreError):
    """Another process has taken over the turn; nothing was written."""

    def __init__(self, session: str, turn: int) -> None:
        self.session = session
        self.turn = turn
        super().__init__(
            f"turn {turn} of session {session!r} is no longer ours: its lease ran out, and another "
            "process has taken it over"
        )


class Overtaken(StoreError):
    """Another process has written to a session since it was read; nothing was written."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(
            f"session {session!r} was written to by another process since it was read; read it "
            "again, and write what is new then"
        )


class TurnEnded(MuntinError):
    """The turn is over, so nothing can be written through its ctx; nothing was written."""

    _fact = "the turn was over"

    def __init__(self, session: str, turn: int) -> None:
        self.session = session
        self.turn = turn
        super().__init__(
            f"turn {turn} of {session!r} is over: its ctx can be read, but nothing more can be "
            "written or run through it. Write before the turn ends, or begin another"
        )


class Deadlock(MuntinError):
    """Something would wait for itself, without end; `cycle` names who waits for whom."""

    _fact = "waiting would never have ended"

    def __init__(self, cycle: Sequence[str], advice: str) -> None:
        self.cycle = tuple(cycle)
        self.advice = advice
        super().__init__(f"waiting would never end: {' → '.join(self.cycle)}. {advice}")


class Overloaded(MuntinError):
    """Too much waits for an entity, or for the app; nothing was stored."""

    _fact = "too much was waiting"


class TimedOut(MuntinError, TimeoutError):
    """A handler or a function took longer than it may."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        super().__init__(f"{what} took longer than {seconds:g} s")


class CostLimit(MuntinError):
    """A request was not sent: its conversation or its turn would cost more than `max_cost`, or its
    model has no known price. The message says what was spent, and what to do."""

    _fact = "the conversation may cost no more"


class StepLimit(MuntinError):
    """An agent's run took all its steps, and the model still calls tools.

    The calls of the last answer were not run. `messages` are all messages of the run so far, and
    all are recorded: to go on with a higher `max_steps`, pass them as `resume=error.messages`, or
    in a conversation or an entity have the turn tried again (`try_again`).
    `reply` is the last answer, with the usage of all steps.
    """

    def __init__(self, max_steps: int, reply: ReplyLike | None, messages: tuple[Any, ...]) -> None:
        self.max_steps = max_steps
        self.reply = reply
        self.messages = messages
        advice = "Raise max_steps, or look for a loop in the messages of this error."
        super().__init__(f"{self.fact}. {advice}")

    @property
    def fact(self) -> str:
        """How many steps there were, and which tools the model still called."""
        calls = ", ".join(call.name for call in self.reply.tool_calls) if self.reply else ""
        still = f"; the model still calls {calls}" if calls else ""
        return f"no answer after {self.max_steps} steps{still}"


class OutputInvalid(MuntinError):
    """The model's answer does not have the form asked for, and neither has its second attempt.

    `problem` says what is wrong, `reply` is the answer, with the usage of both attempts.
    """

    def __init__(self, name: str, problem: str, reply: ReplyLike) -> None:
        self.name = name
        self.problem = problem
        self.reply = reply
        super().__init__(
            f"the answer is not a valid {name}, nor could the model repair it "
            f"(finish_reason {reply.finish_reason!r}): {problem}"
        )


class UnknownAsset(MuntinError, KeyError):
    """No asset is stored under this id."""

    # A KeyError would show its message in quotes.
    __str__ = MuntinError.__str__


# The statuses of a provider that has too much to do: it has begun nothing.
OVERLOADED = (429, 503, 529)


class ProviderError(MuntinError):
    """A provider did not answer; the SDK's own error is the cause (`__cause__`).

    `status` is the HTTP status, None where there was no response. The subclasses say who must
    act; a status that fits none of them is this class itself. With `passing`, the provider has too
    much to do, and the same request may work later: after `retry_after` seconds, if it says so.
    """

    # Whether errors of a class pass by themselves, if nothing else is known.
    _passes: ClassVar[bool] = False

    def __init__(
        self,
        provider: str,
        model: str,
        status: int | None,
        message: str,
        retry_after: float | None = None,
        passing: bool | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.passing = self._passes or status in OVERLOADED if passing is None else passing
        code = f" ({status})" if status is not None else ""
        text = f"{provider}/{model}{code}: {message}"
        if self.passing:
            when = "later" if retry_after is None else f"in {retry_after:g} s"
            text = f"{text.rstrip('.')}; try again {when}"
        super().__init__(text)

    @property
    def fact(self) -> str:
        """That there was no answer; the provider's words about keys and limits are for people."""
        code = "" if self.status is None else f" ({self.status})"
        return f"the model did not answer{code}"


class AuthenticationFailed(ProviderError):
    """The key is missing or wrong, or may not do this (401, 403)."""


class RequestRefused(ProviderError):
    """The provider does not accept this request: window, settings or model name (other 4xx)."""


class ContextTooLong(RequestRefused):
    """The window is larger than the model's; give it a smaller budget."""


class RateLimited(ProviderError):
    """Too many requests (429), or no credit left; no credit left is not `passing`."""

    _passes = True


class ProviderUnavailable(ProviderError):
    """The provider failed (5xx), could not be reached, broke off, or took too long."""


class BadResponse(ProviderError):
    """The answer is not what the provider's API promises, and cannot be read."""


class StrategyError(MuntinError):
    """A hook of a strategy failed or took too long; the user's message is recorded."""

    def __init__(self, hook: str, problem: str) -> None:
        self.hook = hook
        self.problem = problem
        super().__init__(f"the strategy's {hook} {problem}")

    @property
    def fact(self) -> str:
        """Which hook failed."""
        return f"the strategy's {self.hook} failed"
