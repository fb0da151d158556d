"""The budget: how many tokens a window may have.

Only `Budget.for_model` imports from another layer, late.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from muntin.core.checks import check_size, shown
from muntin.errors import InvalidInput, InvalidType, MissingExtra, UnknownModel

# The tokens of a window where the model's own window is not known.
DEFAULT_BUDGET = 128_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens of a window: a maximum for the input, less a reserve.

    `reserved_tokens` are kept free for input that is not composed here. `max_output_tokens` is the
    most that the reply may take; the code that sends the request uses it.
    """

    max_input_tokens: int
    max_output_tokens: int | None = field(default=None, kw_only=True)
    reserved_tokens: int = field(default=0, kw_only=True)
    # The tokens left for the input after the reserve, never below 0.
    remaining_input_tokens: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_input_tokens", "reserved_tokens", "max_output_tokens"):
            size = getattr(self, name)
            is_set = size is not None or name != "max_output_tokens"
            if is_set and (type(size) is not int or size < 0):
                check_size(size, f"Budget.{name}")
        remaining = max(0, self.max_input_tokens - self.reserved_tokens)
        object.__setattr__(self, "remaining_input_tokens", remaining)

    @classmethod
    def for_model(
        cls, model: str, *, max_output_tokens: int | None = None, reserved_tokens: int = 0
    ) -> Budget:
        """Take the model's context window (from `genai-prices`) less the output.

        A model whose window is unknown is an error that says to pass a Budget.
        """
        from muntin.providers.names import context_window

        window = context_window(model)
        output = (
            0 if max_output_tokens is None else check_size(max_output_tokens, "max_output_tokens")
        )
        if output >= window:
            raise InvalidInput(
                f"max_output_tokens={output} leaves no room in the window of {model!r} ({window})"
            )
        return cls(
            window - output, max_output_tokens=max_output_tokens, reserved_tokens=reserved_tokens
        )

    def keeping(self, tokens: int) -> Budget:
        """Return the budget with `tokens` more tokens kept free."""
        return replace(self, reserved_tokens=self.reserved_tokens + tokens) if tokens else self

    @classmethod
    def of(
        cls,
        model: str | None,
        *,
        default: int = DEFAULT_BUDGET,
        max_output_tokens: int | None = None,
    ) -> Budget:
        """Return the same as `for_model`, or `default` if the model's window is not known."""
        if model is not None:
            with suppress(UnknownModel, MissingExtra):
                return cls.for_model(model, max_output_tokens=max_output_tokens)
        return cls(default)


def as_budget(value: Budget | int) -> Budget:
    """Return `value` as a Budget; a plain int is the maximum input."""
    if isinstance(value, Budget):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"a budget must be a Budget or an int, not {shown(value)}")
    return Budget(value)
