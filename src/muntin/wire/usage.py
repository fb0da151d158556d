"""Usage as providers report it, in the form of any of them, read as `Usage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from muntin.core.checks import shown
from muntin.core.usage import Usage
from muntin.errors import InvalidType
from muntin.wire import anthropic, chat, google, responses
from muntin.wire.common import get

UsageLike: TypeAlias = Usage | Mapping[str, Any] | object
# A field of each form that no form before it has, and how the form is read.
_FORMS = (
    ("prompt_tokens", chat.usage_of),
    ("prompt_token_count", google.usage_of),
    ("input_tokens_details", responses.usage_of),
    ("input_tokens", anthropic.usage_of),
)


def as_usage(usage: UsageLike | None) -> Usage | None:
    """Return the usage of an answer, given as `Usage` or as a provider reports it."""
    if usage is None or isinstance(usage, Usage):
        return usage
    for name, read in _FORMS:
        if get(usage, name) is not None:
            return read(usage)
    if isinstance(usage, Mapping) and "input" in usage:
        return Usage.from_dict(usage)
    raise InvalidType(
        "usage must be what a provider reports of an answer: the `usage` of OpenAI or Anthropic, "
        f"the `usage_metadata` of Google, or a Usage, not {shown(usage)}"
    )
