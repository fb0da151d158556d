"""Prompts made of reusable contexts. They declare slots; the engine plans and renders."""

from muntin.prompts.contexts import Context, Match, When, context, match, when
from muntin.prompts.definition import Inspection, Prompt, Resolution, prompt
from muntin.prompts.files import prompt_file
from muntin.prompts.generation import generate, generate_sync, stream_generate
from muntin.resolver_cache import CacheOptions, ResolverCache

__all__ = [
    "CacheOptions",
    "Context",
    "Inspection",
    "Match",
    "Prompt",
    "Resolution",
    "ResolverCache",
    "When",
    "context",
    "generate",
    "generate_sync",
    "match",
    "prompt",
    "prompt_file",
    "stream_generate",
    "when",
]
