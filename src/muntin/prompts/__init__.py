"""Prompts made of reusable contexts. They declare slots; the engine plans and renders."""

from muntin.prompts.cache import CacheOptions, ResolverCache
from muntin.prompts.config import config, set_tokenizer
from muntin.prompts.context import Context, Match, When, context, match, when
from muntin.prompts.inspection import Inspection
from muntin.prompts.prompt import Prompt, Resolution, prompt

__all__ = [
    "CacheOptions",
    "Context",
    "Inspection",
    "Match",
    "Prompt",
    "Resolution",
    "ResolverCache",
    "When",
    "config",
    "context",
    "match",
    "prompt",
    "set_tokenizer",
    "when",
]
