"""Messages and windows as the blocks that a provider hashes."""

from __future__ import annotations

from muntin import Profile, Slots, assistant, system, tool, user
from muntin.core.parts import ToolCall
from muntin.simulator import Block, Request
from muntin.simulator.requests import Blocks, usual_marks
from tests.simulator.cases import CLAUDE, GPT_5, GPT_56, blocks

CALL = ToolCall("c1", "search", '{"q": "x"}')


def test_blocks_are_hashed_as_tools_then_system_then_messages():
    made = Blocks(Profile.for_model("anthropic/claude-sonnet-4-5"), len).of(
        [system("be brief"), user("hi"), system("note"), assistant("yes")],
        ["b", "a", "n", "c"],
        [{"name": "t"}],
    )
    # Later system text stays where it is: the request has it there, as the user's.
    assert [block.source for block in made.blocks] == ["tools", "b", "a", "n", "c"]
    assert made.places == (-1, 0, 1, 2, 3)
    made = Blocks(Profile.for_model("openai/gpt-5"), len).of(
        [user("hi"), system("be brief")], ["a", "b"]
    )
    assert [block.source for block in made.blocks] == ["a", "b"]


def test_text_calls_and_results_are_blocks_and_runs_of_results_one_position():
    second = ToolCall("c2", "search", '{"q": "y"}')
    messages = [
        user("find"),
        assistant("I look.", tool_calls=[CALL, second]),
        tool("c1", "found"),
        tool("c2", "nothing"),
    ]
    made = Blocks(None, len).of(messages, ["history"] * 4)
    placed = zip(made.places, made.blocks, strict=True)
    assert [(place, block.tokens, block.run) for place, block in placed] == [
        (0, 4, False),
        (1, 7, False),
        (1, 32, False),
        (2, 5, False),
        (3, 7, True),
    ]


def test_what_the_wire_adds_is_in_the_blocks():
    profile = Profile.for_model("anthropic/claude-sonnet-4-5")
    slots = Slots(1_000, tokenizer=len, profile=profile)
    slots.add("history", [assistant("Hello!"), user("find"), assistant(tool_calls=[CALL])])
    window = slots.render()
    made = Blocks(profile, len).of_window(window)
    assert sum(block.tokens for block in made.blocks) == window.tokens
    assert [block.source for block in made.blocks] == ["lead", *["history"] * 4]


def test_unmarked_requests_are_marked_behind_the_system_text_and_at_the_end():
    def made(size: int) -> Request:
        return Request(
            (Block("s", 1, source="system"), *blocks(*[1] * size)), places=tuple(range(size + 1))
        )

    assert usual_marks(made(10), CLAUDE) == (1, 11)
    assert usual_marks(made(50), CLAUDE) == (1, 13, 32, 51)
    assert usual_marks(made(10), GPT_5) == ()
    assert usual_marks(made(10), CLAUDE, 5) == (1, 5)
    assert usual_marks(made(30), GPT_56) == (1, *range(11, 32))
