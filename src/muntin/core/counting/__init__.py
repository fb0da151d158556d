"""Counting tokens: the Counter, the estimate, exact vocabularies, formulas for images."""

from muntin.core.counting.counter import Counter, Tokenizer, as_tokenizer
from muntin.core.counting.exact import hf_tokenizer

__all__ = ["Counter", "Tokenizer", "as_tokenizer", "hf_tokenizer"]
