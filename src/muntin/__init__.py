"""Muntin composes a language model's context window, with a receipt for every token.

Names load on first use, so that `import muntin` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.core.budget import Budget
    from muntin.core.message import (
        Attachment,
        File,
        Image,
        Input,
        Message,
        Reasoning,
        Text,
        ToolCall,
        assistant,
        system,
        tool,
        user,
    )
    from muntin.core.profile import Profile
    from muntin.core.report import Decision, Report, SlotReport
    from muntin.core.slot import Cut, Exact, Group
    from muntin.core.slots import Slots
    from muntin.core.tokens import Tokenizer
    from muntin.core.window import Breakpoint, Window
    from muntin.errors import (
        BudgetExceeded,
        InvalidInput,
        MissingExtra,
        MuntinError,
        TokenizerError,
        UnknownModel,
    )
    from muntin.history import History, Tokens, Turns

__version__ = "0.1.0"

_HOMES = {
    "muntin.core.budget": ("Budget",),
    "muntin.core.message": (
        "Attachment",
        "File",
        "Image",
        "Input",
        "Message",
        "Reasoning",
        "Text",
        "ToolCall",
        "assistant",
        "system",
        "tool",
        "user",
    ),
    "muntin.core.profile": ("Profile",),
    "muntin.core.report": ("Decision", "Report", "SlotReport"),
    "muntin.core.slot": ("Cut", "Exact", "Group"),
    "muntin.core.slots": ("Slots",),
    "muntin.core.tokens": ("Tokenizer",),
    "muntin.core.window": ("Breakpoint", "Window"),
    "muntin.errors": (
        "BudgetExceeded",
        "InvalidInput",
        "MissingExtra",
        "MuntinError",
        "TokenizerError",
        "UnknownModel",
    ),
    "muntin.history": ("History", "Tokens", "Turns"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attachment",
    "Breakpoint",
    "Budget",
    "BudgetExceeded",
    "Cut",
    "Decision",
    "Exact",
    "File",
    "Group",
    "History",
    "Image",
    "Input",
    "InvalidInput",
    "Message",
    "MissingExtra",
    "MuntinError",
    "Profile",
    "Reasoning",
    "Report",
    "SlotReport",
    "Slots",
    "Text",
    "Tokenizer",
    "TokenizerError",
    "Tokens",
    "ToolCall",
    "Turns",
    "UnknownModel",
    "Window",
    "__version__",
    "assistant",
    "system",
    "tool",
    "user",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'muntin' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
