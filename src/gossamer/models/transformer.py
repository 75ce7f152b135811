"""A small transformer that reads a text and names its class, trained from scratch."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer.models.architecture import Architecture, check_at_least, check_outputs, token_sizes

PADDING = 0  # the symbol that fills a text up to its length; no word looks at it


@dataclass(frozen=True)
class Transformer(Architecture):
    """A transformer encoder for texts, classified by the mean over the words. Symbol 0 is padding."""

    width: int = 128
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "width", "heads", "layers")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of the {self.heads} heads, {self.width} was given")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and under 1, {self.dropout} was given")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        symbols, length = token_sizes(inputs)
        check_outputs(outputs)
        return _Classifier(symbols, length, self, outputs)


class _Layer(nn.Module):
    """Attention, then two linear layers, each on normalized input and added to it."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        samples, length, width = x.shape
        split = self.queries_keys_values(self.norm1(x)).view(samples, length, 3, self.heads, -1).transpose(1, 3)
        queries, keys, values = split.unbind(2)
        rate = self.rate if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(queries, keys, values, seen[:, None, None], rate)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(samples, length, width)))
        out: Tensor = x + self.dropout(self.inner(self.norm2(x)))
        return out


class _Classifier(nn.Module):
    def __init__(self, symbols: int, length: int, settings: Transformer, outputs: int):
        super().__init__()
        self.symbols = nn.Embedding(symbols, settings.width)
        self.places = nn.Parameter(torch.randn(length, settings.width) * 0.02)
        nn.init.normal_(self.symbols.weight, std=0.02)
        self.layers = nn.ModuleList(
            _Layer(settings.width, settings.heads, settings.dropout) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)
        self.linear = nn.Linear(settings.width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = tokens != PADDING
        seen = seen | ~seen.any(1, keepdim=True)  # an empty text looks at everything, rather than divide by 0
        x = self.symbols(tokens) + self.places[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, seen)
        weights = seen / seen.sum(1, keepdim=True)
        out: Tensor = self.linear((self.norm(x) * weights[..., None]).sum(1))
        return out
