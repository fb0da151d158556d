"""The pure core: messages, tokens, budgets, slots, plans, windows and reports; no I/O, no clock."""

from muntin.core.budget import Budget
from muntin.core.message import Input, Message, assistant, system, tool, user
from muntin.core.parts import Attachment, File, Image, Reasoning, Text, ToolCall
from muntin.core.profile import Caching, Profile
from muntin.core.report import Decision, Report, SlotReport

__all__ = [
    "Attachment",
    "Budget",
    "Caching",
    "Decision",
    "File",
    "Image",
    "Input",
    "Message",
    "Profile",
    "Reasoning",
    "Report",
    "SlotReport",
    "Text",
    "ToolCall",
    "assistant",
    "system",
    "tool",
    "user",
]
