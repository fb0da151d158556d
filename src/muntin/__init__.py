"""Muntin composes a language model's context window, with a receipt for every token.

Names load on first use, so that `import muntin` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.agent import Tool as Tool
    from muntin.agent import Toolbox as Toolbox
    from muntin.core import Attachment as Attachment
    from muntin.core import Budget as Budget
    from muntin.core import Decision as Decision
    from muntin.core import File as File
    from muntin.core import Image as Image
    from muntin.core import Input as Input
    from muntin.core import Message as Message
    from muntin.core import Profile as Profile
    from muntin.core import Reasoning as Reasoning
    from muntin.core import Report as Report
    from muntin.core import SlotReport as SlotReport
    from muntin.core import Text as Text
    from muntin.core import ToolCall as ToolCall
    from muntin.core import assistant as assistant
    from muntin.core import system as system
    from muntin.core import tool as tool
    from muntin.core import user as user
    from muntin.core.caching import Frontier as Frontier
    from muntin.core.counting import Tokenizer as Tokenizer
    from muntin.core.forms import messages_from as messages_from
    from muntin.core.planning import Cut as Cut
    from muntin.core.planning import Exact as Exact
    from muntin.core.planning import Group as Group
    from muntin.core.planning import Ladder as Ladder
    from muntin.core.planning import Pool as Pool
    from muntin.core.planning import Results as Results
    from muntin.core.planning import Stepped as Stepped
    from muntin.core.planning.slots import Slots as Slots
    from muntin.core.tags import RESERVED_TAG_NAMES as RESERVED_TAG_NAMES
    from muntin.core.tags import aggregate as aggregate
    from muntin.core.tags import contribute as contribute
    from muntin.core.tags import normalize_tag_name as normalize_tag_name
    from muntin.core.tags import raw as raw
    from muntin.core.tags import render_tagged_context as render_tagged_context
    from muntin.core.tags import validate_tag_name as validate_tag_name
    from muntin.core.tags import xml_tag as xml_tag
    from muntin.core.toolboxes import ToolSearch as ToolSearch
    from muntin.core.window import Breakpoint as Breakpoint
    from muntin.core.window import Window as Window
    from muntin.errors import BudgetExceeded as BudgetExceeded
    from muntin.errors import InvalidInput as InvalidInput
    from muntin.errors import MissingExtra as MissingExtra
    from muntin.errors import MuntinError as MuntinError
    from muntin.errors import NeedsConversation as NeedsConversation
    from muntin.errors import OutputInvalid as OutputInvalid
    from muntin.errors import PromptFileError as PromptFileError
    from muntin.errors import StepLimit as StepLimit
    from muntin.errors import StoreError as StoreError
    from muntin.errors import TokenizerError as TokenizerError
    from muntin.errors import UnknownModel as UnknownModel
    from muntin.fitting import fit as fit
    from muntin.fitting import fit_client as fit_client
    from muntin.prompts import CacheOptions as CacheOptions
    from muntin.prompts import context as context
    from muntin.prompts import generate as generate
    from muntin.prompts import generate_sync as generate_sync
    from muntin.prompts import match as match
    from muntin.prompts import prompt as prompt
    from muntin.prompts import prompt_file as prompt_file
    from muntin.prompts import when as when
    from muntin.runtime import Action as Action
    from muntin.runtime import App as App
    from muntin.runtime import Source as Source
    from muntin.runtime import Summary as Summary
    from muntin.runtime import Wake as Wake
    from muntin.runtime import capability as capability
    from muntin.runtime import flow as flow
    from muntin.runtime import generator as generator
    from muntin.settings import config as config
    from muntin.settings import set_tokenizer as set_tokenizer
    from muntin.timeline import ContextEntry as ContextEntry
    from muntin.timeline import History as History
    from muntin.timeline import Session as Session
    from muntin.timeline import Tokens as Tokens
    from muntin.timeline import Turns as Turns
    from muntin.timeline.recall import Recall as Recall
    from muntin.timeline.recall import Recalled as Recalled
    from muntin.timeline.recall import Standing as Standing

__version__ = "0.2.0"

# Where each public name lives.
_HOMES = {
    "muntin.core": (
        "Attachment Budget File Image Input Message Profile Reasoning Report Text ToolCall "
        "assistant system tool user"
    ),
    "muntin.core.counting": "Tokenizer",
    "muntin.core.forms": "messages_from",
    "muntin.core.planning": "Cut Exact Group Ladder Results Stepped",
    "muntin.core.planning.slots": "Slots",
    "muntin.core.window": "Window",
    "muntin.agent": "Tool Toolbox",
    "muntin.errors": "BudgetExceeded InvalidInput MuntinError OutputInvalid StepLimit StoreError",
    "muntin.fitting": "fit fit_client",
    "muntin.prompts": "context generate generate_sync match prompt prompt_file when",
    "muntin.runtime": "Action App Source Summary Wake capability flow generator",
    "muntin.settings": "config",
    "muntin.timeline": "ContextEntry History Session Tokens Turns",
    "muntin.timeline.recall": "Recall",
}
# Public too, but seldom needed: importable from here, not listed.
_MORE = {
    "muntin.core.toolboxes": "ToolSearch",
    "muntin.core": "Decision SlotReport",
    "muntin.core.caching": "Frontier",
    "muntin.core.window": "Breakpoint",
    "muntin.core.planning": "Pool",
    "muntin.core.tags": (
        "RESERVED_TAG_NAMES aggregate contribute normalize_tag_name raw render_tagged_context "
        "validate_tag_name xml_tag"
    ),
    "muntin.errors": "MissingExtra NeedsConversation PromptFileError TokenizerError UnknownModel",
    "muntin.prompts": "CacheOptions",
    "muntin.settings": "set_tokenizer",
    "muntin.timeline.recall": "Recalled Standing",
}
_HOME = {
    name: module
    for homes in (_HOMES, _MORE)
    for module, names in homes.items()
    for name in names.split()
}

__all__ = sorted(["__version__", *(name for names in _HOMES.values() for name in names.split())])


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'muntin' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
