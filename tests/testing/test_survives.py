"""`assert_survives`: proof, in the CI of those who use prompts, that a context is not dropped."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from muntin import InvalidInput, context, prompt, when
from muntin.errors import InvalidType
from muntin.testing import assert_survives
from tests import words


class Notes(BaseModel):
    notes: str = ""


RULES = context(id="rules", priority=60, system="r" * 10)
NOTES = context(id="notes", input=Notes, priority=80, system=lambda input: input.notes)
BOT = prompt(use=[RULES, NOTES], system="own")


_one_token_a_character = words.one_token_a_character


def test_a_context_that_is_kept_for_every_input_survives():
    assert_survives(BOT, "rules", token_budget=20, inputs=[{}, {"notes": "nnn"}])
    assert_survives(BOT, "rules", token_budget=26, inputs=[{"notes": "n" * 9}, {"notes": ""}])


def test_a_context_that_would_be_dropped_fails_with_the_report():
    with pytest.raises(AssertionError) as caught:
        assert_survives(BOT, "rules", token_budget=25, inputs=[{}, {"notes": "n" * 9}])
    shown = str(caught.value)
    for word in ("rules", "notes", "over_budget", "25", "dropped"):
        assert word in shown


def test_the_failure_says_which_input_it_was():
    with pytest.raises(AssertionError, match="nnnnnnnnn"):
        assert_survives(BOT, "rules", token_budget=25, inputs=[{}, {"notes": "n" * 9}])


def test_the_only_input_may_be_left_out():
    assert_survives(BOT, "rules", token_budget=15)
    with pytest.raises(AssertionError):
        assert_survives(BOT, "rules", token_budget=14)


def test_another_context_may_be_dropped():
    assert_survives(BOT, "notes", token_budget=20, inputs=[{"notes": "n" * 9}])


def test_a_pinned_context_survives():
    pinned = prompt(
        use=[context(id="critical", priority=100, system="c"), context(system="x" * 99)],
        system="own",
    )
    assert_survives(pinned, "critical", token_budget=10)


def test_a_nested_context_is_found():
    outer = prompt(use=[context(id="outer", system="o" * 30, use=[RULES])])
    assert_survives(outer, "rules", token_budget=10)


def test_a_name_that_is_in_no_context_is_an_error_and_not_a_success():
    with pytest.raises(InvalidInput, match="rulez"):
        assert_survives(BOT, "rulez", token_budget=100)


def test_no_inputs_at_all_is_an_error_and_not_a_success():
    with pytest.raises(InvalidInput, match="inputs"):
        assert_survives(BOT, "rules", token_budget=100, inputs=[])


def test_a_context_that_is_never_there_does_not_survive():
    absent = prompt(use=[when(lambda: False, RULES)])
    with pytest.raises(AssertionError, match="rules"):
        assert_survives(absent, "rules", token_budget=100)


def test_asynchronous_resolvers_are_awaited():
    async def later() -> str:
        await asyncio.sleep(0)
        return "l" * 10

    p = prompt(use=[context(id="later", system=later)])
    assert_survives(p, "later", token_budget=10)
    with pytest.raises(AssertionError):
        assert_survives(p, "later", token_budget=9)


def test_what_is_not_a_prompt_an_id_or_a_list_of_inputs_is_an_error_naming_it():
    with pytest.raises(InvalidType, match="needs a prompt, not 5"):
        assert_survives(5, "rules", token_budget=20)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="the id of a context must be a str"):
        assert_survives(BOT, "rules", ["notes"], token_budget=20)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="inputs must be a list of inputs, not 5"):
        assert_survives(BOT, "rules", token_budget=20, inputs=5)  # type: ignore[arg-type]
