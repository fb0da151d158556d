"""Muntin composes a language model's context window, with a receipt for every token.

Names load on first use, so that `import muntin` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.core.budget import Budget
    from muntin.core.frontier import Frontier
    from muntin.core.message import Input, Message, assistant, system, tool, user
    from muntin.core.parts import Attachment, File, Image, Reasoning, Text, ToolCall
    from muntin.core.profile import Profile
    from muntin.core.report import Decision, Report, SlotReport
    from muntin.core.slot import Cut, Exact, Group, Stepped
    from muntin.core.slots import Slots
    from muntin.core.tags import (
        RESERVED_TAG_NAMES,
        aggregate,
        contribute,
        normalize_tag_name,
        raw,
        render_tagged_context,
        validate_tag_name,
        xml_tag,
    )
    from muntin.core.tokens import Tokenizer
    from muntin.core.window import Breakpoint, Window
    from muntin.entries import ContextEntry
    from muntin.errors import (
        BudgetExceeded,
        InvalidInput,
        MissingExtra,
        MuntinError,
        OutputInvalid,
        PromptFileError,
        StepLimit,
        StoreError,
        TokenizerError,
        UnknownModel,
    )
    from muntin.generation import generate, generate_sync
    from muntin.history import History, Tokens, Turns
    from muntin.prompt_files import prompt_file
    from muntin.prompts import (
        CacheOptions,
        config,
        context,
        match,
        prompt,
        set_tokenizer,
        when,
    )
    from muntin.runtime.app import App
    from muntin.runtime.capabilities import capability
    from muntin.runtime.entities import Wake
    from muntin.runtime.flows import Action, flow
    from muntin.runtime.generators import generator
    from muntin.runtime.sources import Source
    from muntin.session import Session
    from muntin.tools import Tool

__version__ = "0.1.0"

_HOMES = {
    "muntin.core.budget": ("Budget",),
    "muntin.core.frontier": ("Frontier",),
    "muntin.core.message": ("Input", "Message", "assistant", "system", "tool", "user"),
    "muntin.core.parts": ("Attachment", "File", "Image", "Reasoning", "Text", "ToolCall"),
    "muntin.core.profile": ("Profile",),
    "muntin.core.report": ("Decision", "Report", "SlotReport"),
    "muntin.core.slot": ("Cut", "Exact", "Group", "Stepped"),
    "muntin.core.slots": ("Slots",),
    "muntin.core.tags": (
        "RESERVED_TAG_NAMES",
        "aggregate",
        "contribute",
        "normalize_tag_name",
        "raw",
        "render_tagged_context",
        "validate_tag_name",
        "xml_tag",
    ),
    "muntin.core.tokens": ("Tokenizer",),
    "muntin.core.window": ("Breakpoint", "Window"),
    "muntin.entries": ("ContextEntry",),
    "muntin.errors": (
        "BudgetExceeded",
        "InvalidInput",
        "MissingExtra",
        "MuntinError",
        "OutputInvalid",
        "PromptFileError",
        "StoreError",
        "StepLimit",
        "TokenizerError",
        "UnknownModel",
    ),
    "muntin.generation": ("generate", "generate_sync"),
    "muntin.history": ("History", "Tokens", "Turns"),
    "muntin.prompt_files": ("prompt_file",),
    "muntin.prompts": (
        "CacheOptions",
        "config",
        "context",
        "match",
        "prompt",
        "set_tokenizer",
        "when",
    ),
    "muntin.runtime.app": ("App",),
    "muntin.runtime.capabilities": ("capability",),
    "muntin.runtime.entities": ("Wake",),
    "muntin.runtime.flows": ("Action", "flow"),
    "muntin.runtime.generators": ("generator",),
    "muntin.runtime.sources": ("Source",),
    "muntin.session": ("Session",),
    "muntin.tools": ("Tool",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "RESERVED_TAG_NAMES",
    "Action",
    "App",
    "Attachment",
    "Breakpoint",
    "Budget",
    "BudgetExceeded",
    "CacheOptions",
    "ContextEntry",
    "Cut",
    "Decision",
    "Exact",
    "File",
    "Frontier",
    "Group",
    "History",
    "Image",
    "Input",
    "InvalidInput",
    "Message",
    "MissingExtra",
    "MuntinError",
    "OutputInvalid",
    "Profile",
    "PromptFileError",
    "Reasoning",
    "Report",
    "Session",
    "SlotReport",
    "Slots",
    "Source",
    "StepLimit",
    "Stepped",
    "StoreError",
    "Text",
    "Tokenizer",
    "TokenizerError",
    "Tokens",
    "Tool",
    "ToolCall",
    "Turns",
    "UnknownModel",
    "Wake",
    "Window",
    "__version__",
    "aggregate",
    "assistant",
    "capability",
    "config",
    "context",
    "contribute",
    "flow",
    "generate",
    "generate_sync",
    "generator",
    "match",
    "normalize_tag_name",
    "prompt",
    "prompt_file",
    "raw",
    "render_tagged_context",
    "set_tokenizer",
    "system",
    "tool",
    "user",
    "validate_tag_name",
    "when",
    "xml_tag",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'muntin' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
