"""Write the pages of the reference from signatures and docstrings, as Markdown.

    python -m tools.reference        # writes docs/reference/*.md

The pages are in the repository, so that they can be read without the site; a test compares them
with the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from muntin import errors

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
WIDE = 88  # a longer signature has a line for each parameter


class Page(NamedTuple):
    """A page: its title, what it opens with, and its names, each under its home."""

    title: str
    opening: str
    names: tuple[str, ...]


# Names that are no functions and no classes have no docstring of their own.
VALUES = {
    "muntin.__version__": "The version of Muntin, a str.",
    "muntin.RESERVED_TAG_NAMES": "Names that no tag may have.",
    "muntin.agent.ToolLike": "What is taken for a tool: a function, a `Tool`, or a schema.",
    "muntin.wire.chat": "OpenAI's Chat Completions.",
    "muntin.wire.responses": "OpenAI's Responses.",
    "muntin.wire.anthropic": "Anthropic's Messages.",
    "muntin.wire.google": "Google's generateContent.",
}


def _names(home: str, names: str) -> tuple[str, ...]:
    return tuple(f"{home}.{name}" for name in names.split())


PAGES: Mapping[str, Page] = {
    "window": Page(
        "Slots, windows and reports",
        "What [Slots](../slots.md), [Counting tokens](../tokens.md) and [Caching](../caching.md) "
        "explain.",
        (
            *_names("muntin", "Slots Input Budget Group Cut Exact Stepped Results Ladder Window"),
            *_names("muntin", "Report SlotReport Decision Breakpoint Frontier Profile"),
            "muntin.core.Caching",
            *_names("muntin", "Tokenizer set_tokenizer __version__"),
        ),
    ),
    "messages": Page(
        "Messages and history",
        "The values that a window is made of. All are frozen. OpenAI-style dicts are taken "
        "wherever a message is.",
        (
            *_names("muntin", "Message system user assistant tool messages_from Text Image File"),
            *_names("muntin", "Attachment Reasoning ToolCall History Turns Tokens"),
        ),
    ),
    "prompts": Page(
        "Prompts, contexts and tags",
        "What [Prompts](../prompts.md), [Prompt files](../prompt-files.md) and [Tags](../tags.md) "
        "explain.",
        (
            *_names("muntin", "context prompt when match config CacheOptions prompt_file"),
            *_names("muntin.prompts", "Context Prompt When Match Resolution Inspection"),
            "muntin.prompts.ResolverCache",
            *_names("muntin", "render_tagged_context xml_tag raw contribute aggregate"),
            *_names("muntin", "normalize_tag_name validate_tag_name RESERVED_TAG_NAMES"),
        ),
    ),
    "fitting": Page(
        "Fitting lists of messages",
        "What [Fit a list of messages](../howto/fit.md) uses.",
        (
            *_names("muntin", "fit fit_client"),
            *_names(
                "muntin.fitting", "FittedMessages Fitter Piece Pieces Placed Fitted Recorder Sent"
            ),
            "muntin.integrations.anthropic.MuntinMiddleware",
            "muntin.integrations.transport.FitTransport",
        ),
    ),
    "runtime": Page(
        "The runtime",
        "What [Conversations](../conversations.md), [Entities](../entities.md) and "
        "[Generators](../generators.md) explain.",
        (
            "muntin.App",
            *_names("muntin.runtime", "Conversation Ctx SyncApp SyncConversation"),
            *_names(
                "muntin", "Wake Source Recall Standing Summary generator capability flow Action"
            ),
            "muntin.runtime.read_plan",
            *_names("muntin.runtime.engine", "Engine Embedded EngineState"),
            "muntin.mcp.mcp_server",
        ),
    ),
    "sessions": Page(
        "Sessions and stores",
        "What [Sessions](../sessions.md) and [Durability](../durability.md) explain.",
        (
            "muntin.Session",
            *_names("muntin.timeline", "Items OpenTurn"),
            "muntin.ContextEntry",
            *_names("muntin.timeline.recall", "Recalled Excerpt"),
            *_names("muntin.timeline", "open_store Store Draft Item Visibility Turn SessionInfo"),
            *_names("muntin.timeline", "Record export_session import_sessions Imported"),
        ),
    ),
    "models": Page(
        "Models, agents and tools",
        "What [Models](../models.md), [Generate](../generate.md) and [Agents](../agents.md) "
        "explain.",
        (
            *_names("muntin", "generate generate_sync"),
            "muntin.prompts.stream_generate",
            *_names("muntin.agent", "run_agent stream_agent"),
            "muntin.Tool",
            "muntin.Toolbox",
            "muntin.ToolSearch",
            *_names("muntin.agent", "tool_schema ToolLike"),
            *_names("muntin.providers", "as_model caching_for Client Model Reply Usage TextDelta"),
            *_names("muntin.providers", "ReasoningDelta ToolCalled ToolFinished Finished"),
            *_names("muntin.providers", "DirectoryAssets WithAssets"),
        ),
    ),
    "providers": Page(
        "Wire formats",
        "What [Providers](../providers.md) explains. Of each API `encode` turns a window into a "
        "request, and `decode` a response into a reply; `Assembler` reads a stream.",
        _names("muntin.wire", "chat responses anthropic google"),
    ),
    "simulator": Page(
        "The simulator",
        "What [Simulator](../simulator.md) explains.",
        (
            *_names("muntin.simulator", "simulate simulate_trace trace_of Simulation PolicyRun"),
            *_names("muntin.simulator", "RequestCost Cache Request Block Usage"),
        ),
    ),
    "testing": Page(
        "For your tests",
        "What [Test that critical rules survive](../howto/critical-rules.md) uses.",
        _names("muntin.testing", "ScriptedModel assert_survives MemoryStore"),
    ),
    "errors": Page(
        "Errors",
        "The classes. What each of them means, with an example and what to do, is on the page "
        "[Errors](../errors.md).",
        tuple(
            f"muntin.errors.{name}"
            for name, found in vars(errors).items()
            if inspect.isclass(found) and issubclass(found, errors.MuntinError)
        ),
    ),
}


def main() -> None:
    """Write all pages."""
    for name in PAGES:
        path = FOLDER / f"{name}.md"
        path.write_text(written(name), encoding="utf-8")
        print(path)


def written(name: str) -> str:
    """Return a page."""
    page = PAGES[name]
    parts = [f"# {page.title}", page.opening, "Made from the code by `python -m tools.reference`."]
    for each in page.names:
        parts += described(each, page)
    return "\n\n".join(parts) + "\n"


def described(name: str, page: Page) -> Iterator[str]:
    """Yield what a page says of one name."""
    home, _, last = name.rpartition(".")
    title = name if [other.rpartition(".")[2] for other in page.names].count(last) > 1 else last
    yield f"## {title}"
    yield f"`from {home} import {last}`"
    if name in VALUES:
        yield VALUES[name]
        return
    found = getattr(import_module(home), last)
    yield shown(last, found)
    yield from text_of(found)
    if inspect.isclass(found):
        for member, value in members(found):
            yield f"### {last}.{member}"
            yield from member_of(f"{last}.{member}", value)


def members(found: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members that a class itself defines and describes, in their order."""
    for name, value in vars(found).items():
        given = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        callable_ = inspect.isroutine(given) or isinstance(given, property)
        if not name.startswith("_") and callable_ and inspect.getdoc(given):
            yield name, given


def member_of(name: str, value: Any) -> Iterator[str]:
    """Yield what is said of a method or a property."""
    if isinstance(value, property):
        returns = getattr(value.fget, "__annotations__", {}).get("return", "")
        # With the quotes of a formatted page: this is the only block that is valid Python.
        yield "```py\n{}: {}\n```".format(name, returns.replace("'", '"'))
    else:
        yield shown(name, value)
    yield from text_of(value)


def text_of(found: Any) -> Iterator[str]:
    """Yield the docstring, unless a dataclass made it by itself."""
    text = inspect.getdoc(found)
    if text and not text.startswith(f"{getattr(found, '__name__', '?')}("):
        yield text


def shown(name: str, found: Any) -> str:
    """Return the signature as a block of code."""
    prefix = "class " if inspect.isclass(found) else "async " * inspect.iscoroutinefunction(found)
    return f"```py\n{prefix}{name}{signature(found)}\n```"


def signature(found: Any) -> str:
    """Return the parameters of a function or a class, on one line or on several."""
    own = not inspect.isclass(found) or not issubclass(found, BaseException)
    try:
        given = inspect.signature(found) if own else None
    except (TypeError, ValueError):
        given = None
    if given is None or not given.parameters:
        return "()" if inspect.isroutine(found) else ""
    parts = [part for part in _parameters(given) if part != "self" and part != "cls"]
    returns = "" if inspect.isclass(found) else _returns(given)
    line = f"({', '.join(parts)}){returns}"
    if len(line) <= WIDE:
        return line
    rows = "".join(f"    {part},\n" for part in parts)
    return f"(\n{rows}){returns}"


def _parameters(given: inspect.Signature) -> Iterator[str]:
    keywords = False
    for parameter in given.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            keywords = True
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        yield _plain(str(parameter))


def _returns(given: inspect.Signature) -> str:
    if given.return_annotation is inspect.Signature.empty:
        return ""
    return _plain(f" -> {given.return_annotation}")


def _plain(text: str) -> str:
    """Write a parameter without quotes around types, and defaults without addresses."""
    text = re.sub(r"^(\*{0,2}\w+): (['\"])(.*?)\2(?= =|$)", r"\1: \3", text)
    text = re.sub(r"<function [^ ]*<lambda> at \w+>", "...", text)
    return re.sub(r"<(?:function )?([\w.]+)[^>]*>", r"\1", text).replace("factory", "...")


if __name__ == "__main__":
    main()
