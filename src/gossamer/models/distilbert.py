"""DistilBERT (Sanh et al. 2019), fine-tuned from weights that are on disk."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gossamer.models.architecture import Architecture, check_outputs, token_sizes


@dataclass(frozen=True)
class DistilBert(Architecture):
    """DistilBERT with a new classifier on weights from disk; it needs the transformers package. Symbol 0 is padding."""

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
        logits: Tensor = self.model(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
        return logits
