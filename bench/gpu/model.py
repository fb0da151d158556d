"""A decoder of the shape of an 8B model with random weights, and its key-value cache.

32 layers of 4 096, 32 heads that share 8 keys, a vocabulary of 128 256, bfloat16: the arithmetic
of a first token is that of a trained model. One conversation has the cache to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right


@dataclass(frozen=True)
class Shape:
    """How large a model is."""

    layers: int = 32
    width: int = 4_096
    heads: int = 32
    shared_heads: int = 8
    inner: int = 14_336
    vocabulary: int = 128_256

    @property
    def head(self) -> int:
        """The width of one head."""
        return self.width // self.heads


class Model:
    """Reads requests into its cache, and says the first token of an answer."""

    def __init__(self, shape: Shape, longest: int, device: str = "cuda") -> None:
        self.shape = shape
        self.device = device
        torch.manual_seed(0)
        kept = shape.shared_heads * shape.head
        wide = (shape.heads * shape.head) + 2 * kept
        self.layers = [
            {
                "qkv": self._matrix(wide, shape.width),
                "out": self._matrix(shape.width, shape.width),
                "up": self._matrix(2 * shape.inner, shape.width),
                "down": self._matrix(shape.width, shape.inner),
            }
            for _ in range(shape.layers)
        ]
        self.words = self._matrix(shape.vocabulary, shape.width)
        size = (shape.layers, 2, shape.shared_heads, longest, shape.head)
        self.cache = torch.zeros(size, dtype=torch.bfloat16, device=device)
        self.turns = self._rotation(longest)

    def _matrix(self, rows: int, columns: int) -> Any:
        given = torch.randn(rows, columns, dtype=torch.bfloat16, device=self.device)
        return given.mul_(columns**-0.5)

    def _rotation(self, longest: int) -> Any:
        half = torch.arange(0, self.shape.head, 2, device=self.device) / self.shape.head
        angles = torch.outer(torch.arange(longest, device=self.device), 500_000.0**-half)
        return torch.stack((angles.cos(), angles.sin())).to(torch.bfloat16)

    def _rotated(self, given: Any, first: int) -> Any:
        cos, sin = self.turns[:, first : first + given.shape[1]]
        one, other = given.chunk(2, dim=-1)
        return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)

    def _attend(self, number: int, given: Any, known: int) -> Any:
        shape, layer = self.shape, self.layers[number]
        kept = shape.shared_heads * shape.head
        mixed = functional.linear(given, layer["qkv"])
        ask, key, value = mixed.split((shape.width, kept, kept), dim=-1)
        ask, key, value = (
            each.view(len(given), -1, shape.head).transpose(0, 1) for each in (ask, key, value)
        )
        end = known + len(given)
        self.cache[number, 0, :, known:end] = self._rotated(key, known)
        self.cache[number, 1, :, known:end] = value
        read = functional.scaled_dot_product_attention(
            self._rotated(ask, known)[None],
            self.cache[number, 0, :, :end][None],
            self.cache[number, 1, :, :end][None],
            attn_mask=causal_lower_right(len(given), end),
            enable_gqa=True,
        )
        return functional.linear(read[0].transpose(0, 1).flatten(1), layer["out"])

    def first_token(self, tokens: Any, known: int) -> int:
        """Read what is new behind what is known, and say the first token of the answer."""
        shape = (self.shape.width,)
        state = functional.embedding(tokens, self.words)
        for number, layer in enumerate(self.layers):
            state = state + self._attend(number, functional.rms_norm(state, shape), known)
            gate, up = functional.linear(functional.rms_norm(state, shape), layer["up"]).chunk(2, 1)
            state = state + functional.linear(functional.silu(gate) * up, layer["down"])
        logits = functional.linear(functional.rms_norm(state[-1:], shape), self.words)
        return int(logits.argmax())

    def seconds(self, known: int, length: int) -> float:
        """Time one request of this length of which so many tokens are in the cache."""
        new = max(length - known, 1)  # the last token is always read again
        tokens = torch.randint(self.shape.vocabulary, (new,), device=self.device)
        torch.cuda.synchronize()
        start = perf_counter()
        with torch.inference_mode():
            self.first_token(tokens, length - new)
        return perf_counter() - start
