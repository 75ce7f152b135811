"""Transformers that read a text and name its class: a small one from scratch, DistilBERT from weights on disk."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class DistilBert(Architecture):
    """DistilBERT (Sanh et al. 2019) with a new classifier on weights from disk; it needs the transformers package.

    Symbol 0 is padding.
    """

    path: str  # of a folder with config.json and model.safetensors, as save_pretrained writes it

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        symbols, length = token_sizes(inputs)
        check_outputs(outputs)
        for name in ("config.json", "model.safetensors"):
            if not (Path(self.path) / name).is_file():
                raise ValueError(
                    f"path must be a folder with DistilBERT's config.json and model.safetensors, "
                    f"{self.path!r} has no {name}; download distilbert-base-uncased there"
                )
        if find_spec("transformers") is None:
            raise ValueError("distilbert needs the transformers package; install gossamer[transformers]")
        return _load(self.path, symbols, length, outputs)


def _load(path: str, symbols: int, length: int, outputs: int) -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig.from_pretrained(path, num_labels=outputs, local_files_only=True)
    if symbols > config.vocab_size or length > config.max_position_embeddings:
        raise ValueError(
            f"inputs must be texts of at most {config.max_position_embeddings} of {config.vocab_size} symbols for the "
            f"DistilBERT in {path}, {(symbols, length)} was given"
        )
    model = DistilBertForSequenceClassification.from_pretrained(
        path, config=config, local_files_only=True, use_safetensors=True, ignore_mismatched_sizes=True
    )
    return _Logits(model)


class _Logits(nn.Module):
    """A model of the transformers library as a plain module: tokens in, one number per class out."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens, attention_mask=(tokens != PADDING).long()).logits
        return logits
