"""For users' own tests: what must survive, survives; a store keeps its promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from muntin.core.checks import check_text
from muntin.core.tokens import TokenizerLike
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.prompt import Prompt
from muntin.store.conformance import CHECKS, check_store
from muntin.store.memory import MemoryStore

__all__ = ["CHECKS", "MemoryStore", "assert_survives", "check_store"]


def assert_survives(
    prompt: Prompt,
    *ids: str,
    token_budget: int,
    inputs: Iterable[Any] = (None,),
    provider: str | None = None,
    model_id: str | None = None,
    tokenizer: TokenizerLike | None = None,
) -> None:
    """Fail, with the report, unless every context named is in the window for every input."""
    if not isinstance(prompt, Prompt):
        raise InvalidType(f"assert_survives needs a prompt, not {prompt!r}")
    if not isinstance(inputs, Iterable):
        raise InvalidType(f"inputs must be a list of inputs, not {inputs!r}")
    for name in ids:
        check_text(name, "the id of a context")
    known = {each.context.id for each in prompt.reached if each.context.id}
    unknown = sorted(set(ids) - known)
    if unknown or not ids:
        raise InvalidInput(f"no context {unknown or 'named'}; the prompt has {sorted(known)}")
    values = list(inputs)
    if not values:
        raise InvalidInput("assert_survives needs inputs to try; without any it proves nothing")
    for value in values:
        shown = prompt.inspect_sync(
            value,
            token_budget=token_budget,
            provider=provider,
            model_id=model_id,
            tokenizer=tokenizer,
        )
        kept = {part.source for part in shown.system.parts if part.status == "kept"}
        lost = [name for name in ids if f"context:{name}" not in kept]
        if lost or shown.over_budget:
            what = f"{', '.join(lost)} would be lost" if lost else "the prompt is over budget"
            raise AssertionError(f"{what} with input {value!r}\n{shown}\n\n{shown.report}")
