"""What is handed to a prompt or to `generate` is used as it was when it was handed over, or refused
by an error that names it; a blank question is never sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from muntin import (
    Attachment,
    InvalidInput,
    assistant,
    context,
    generate_sync,
    match,
    prompt,
    prompt_file,
    system,
    user,
)
from muntin.errors import PromptFileError
from muntin.prompts import stream_generate
from muntin.testing import ScriptedModel
from tests.products import PRICED

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

BLANK = ["", " ", "\n\t ", "\u00a0\u2003"]


class Question(BaseModel):
    text: str


# Blank questions.


def refused(asked: Any, match: str, **options: Any) -> None:
    model = ScriptedModel(["never"], name=PRICED)
    with pytest.raises(InvalidInput, match=match):
        generate_sync(asked, model=model, **options)

    async def stream() -> None:
        async for _ in stream_generate(asked, model=model, **options):
            raise AssertionError("nothing may be sent")

    with pytest.raises(InvalidInput, match=match):
        asyncio.run(stream())
    assert not model.windows


@pytest.mark.parametrize("text", BLANK)
def test_a_blank_question_is_refused_by_name(text):
    refused(text, "generate needs a text that is not empty")
    said: Any = {"input": Question, "prompt": lambda input: input.text}
    ask = prompt(id="ask", system="You are a clerk.", **said)
    refused(ask, "prompt 'ask': the prompt text is blank", input={"text": text})
    refused(prompt(**said), "the prompt is empty for this input", input={"text": text})
    refused(prompt(system=text, use=[context(system=text)]), "nothing to send")
    refused(prompt(messages=[user(text)]), "nothing to send")
    refused(
        prompt(messages=[system("s"), user("old"), assistant("a"), user(text)]),
        "the last message of the user is blank",
    )


def test_a_prompt_of_system_text_alone_is_something():
    model = ScriptedModel(["yes"], name=PRICED)
    generate_sync(prompt(system="Say yes."), model=model)
    assert model.windows[0].messages == (system("Say yes."),)


def test_attachments_alone_are_something():
    model = ScriptedModel(["yes"], name=PRICED)
    file = Attachment("1", "a.pdf", 1_000, "document")
    generate_sync(prompt(messages=[user("", attachments=[file])]), model=model)
    assert model.windows[0].messages[0].attachments == (file,)


# What was handed over does not change.


def test_a_prompt_does_not_change_when_its_messages_do():
    said: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "before"}]}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    called: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    given = [said, called]
    bot = prompt(messages=given)
    first = bot.resolve_sync().window.openai()
    said["content"][0]["text"] = "after"
    said["role"] = "system"
    call["function"]["name"] = "other"  # type: ignore[index]
    given.append({"role": "user", "content": "more"})
    assert bot.resolve_sync().window.openai() == first
    assert "before" in str(first)
    assert "after" not in str(first)


def test_a_message_that_cannot_be_read_is_named_where_the_prompt_is_defined():
    with pytest.raises(InvalidInput, match=r"prompt 'p': message 1: .* needs a 'role'"):
        prompt(id="p", messages=[user("x"), {"content": "x"}])
    late = prompt(messages=lambda: [user("x"), 5])
    with pytest.raises(InvalidInput, match=r"the messages of the prompt\[1\]"):
        late.resolve_sync()


# Annotations that cannot be evaluated.


def test_functions_work_whatever_their_annotations_name():
    def own(input: Unknown) -> Unknown:
        return "own"

    async def said() -> Unknown:
        return "said"

    def holds(input: Unknown) -> Unknown:
        return True

    made = prompt(
        system=own,
        prompt=said,
        use=[context(system=own, when=holds)],
    ).resolve_sync({"a": 1})
    assert (made.system, made.prompt) == ("own\n\nown", "said")


def test_a_model_whose_fields_name_what_is_not_there_is_refused_by_name():
    class Half(BaseModel):
        field: Unknown

    what = "the model Half is not whole: its fields name 'Unknown'"
    with pytest.raises(InvalidInput, match=f"^prompt: {what}"):
        prompt(system="x", input=Half).resolve_sync({"field": 1})
    half = context(id="half", input=Half, system="x")
    with pytest.raises(InvalidInput, match=f"^context:half: {what}"):
        prompt(use=[half]).resolve_sync({"field": 1})
    refused("go", f"^generate: output: {what}", output=Half)
    refused(prompt(prompt="go", output=Half), f"^generate: output: {what}")


def test_a_model_that_is_whole_by_the_time_it_is_used_works():
    class Late(BaseModel):
        other: Other

    bot = prompt(system=lambda input: str(input.other), input=Late)

    class Other(BaseModel):
        n: int

    Late.model_rebuild(_types_namespace={"Other": Other})
    assert bot.resolve_sync({"other": {"n": 1}}).system == "n=1"


# Values in prompt files.


def _holds_itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a\ud800", "a value has a lone surrogate"),
        (_holds_itself(), "a value is nested too deeply to be written, or holds itself"),
        (b"x", "a template cannot read a bytes"),
        ({1}, "a template cannot read a set"),
        (10**5_000, "4300 digits"),
    ],
    ids=["surrogate", "circle", "bytes", "set", "long"],
)
def test_a_value_that_cannot_be_written_is_refused_by_file_and_line(value, problem, tmp_path):
    file = tmp_path / "ask.md"
    file.write_text("<system>\nBe kind.\n{{ input.q }}\n</system>\n", encoding="utf-8")
    with pytest.raises(PromptFileError, match=rf"ask.md:\d: .*{problem}"):
        prompt_file(file).render({"q": value})


# Other wrong inputs.


def test_the_truth_of_an_answer_may_fail_and_is_named():
    class Undecided:
        def __bool__(self) -> bool:
            raise RuntimeError("neither")

    bot = prompt(use=[context(id="x", system="x", when=lambda: Undecided())])
    with pytest.raises(RuntimeError) as caught:
        bot.resolve_sync()
    assert caught.value.__notes__ == ["raised by the condition of context:x"]


def test_a_reason_quotes_no_more_than_the_beginning_of_a_value():
    bot = prompt(use=[match(on=lambda: "y" * 1_000_000, cases={1: context(system="x")})])
    (out,) = bot.inspect_sync().excluded_contexts
    assert out.reason.startswith("condition_false: no case for 'yyy")
    assert len(out.reason) < 300


def test_a_number_of_steps_is_no_truth_and_an_id_is_no_blank():
    refused("go", "max_steps must be an int, not True", max_steps=True)
    with pytest.raises(InvalidInput, match="context: id must not be empty"):
        context(id=" ", system="x")
