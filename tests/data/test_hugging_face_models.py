"""Models of Hugging Face as they are, with dictionaries as batches, tied weights, and adapters of peft."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import gossamer as gs

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

WORDS = torch.randint(1, 30, (96, 7), generator=torch.Generator().manual_seed(0))
COLUMNS = {"input_ids": WORDS, "labels": (WORDS[:, 0] > 14).long()}
CONFIG = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 30, "n_positions": 7, "pad_token_id": 0}
ADAPTERS = {"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True}


def config() -> Any:
    return transformers.GPT2Config(**CONFIG, bos_token_id=1, eos_token_id=1, attn_pdrop=0.0)


def experiment(task: gs.Supervised, **more: Any) -> gs.Experiment:
    settings = {"nodes": 3, "rounds": 3, "topology": gs.Ring(), "optimizer": gs.Adam(0.01), "task": task}
    return gs.Experiment(**settings | more)


def test_a_models_own_loss_is_the_one_that_is_trained() -> None:
    torch.manual_seed(0)
    model = transformers.GPT2ForSequenceClassification(config()).eval()
    task = gs.Supervised(model, COLUMNS, COLUMNS).load()
    loss, _ = task.evaluate(task.initial_model(0), torch.arange(20).numpy())
    with torch.no_grad():
        expected = model(input_ids=WORDS[:20], labels=COLUMNS["labels"][:20]).loss.item()
    assert loss == pytest.approx(expected, rel=1e-6)
    runs = [gs.simulate(experiment(task), workers=workers) for workers in (1, 2)]
    assert runs[0].models_sha256 == runs[1].models_sha256
    assert isinstance(runs[0].module("mean"), transformers.GPT2ForSequenceClassification)


def test_tied_weights_are_one_parameter_and_stay_tied() -> None:
    model = transformers.GPT2LMHeadModel(config())
    assert model.lm_head.weight is model.transformer.wte.weight
    texts = {"input_ids": WORDS, "labels": WORDS}
    task = gs.Supervised(model, texts, texts, score=lambda o, y: (o[:, :-1].argmax(-1) == y[:, 1:]).float().mean(1))
    assert sum(task.layer_sizes) == sum(p.numel() for p in model.parameters())
    trained = gs.simulate(experiment(task), workers=1).module("mean")
    assert trained.lm_head.weight is trained.transformer.wte.weight
    assert not torch.equal(trained.lm_head.weight, model.lm_head.weight)


def adapted() -> tuple[nn.Module, nn.Module]:
    """A model, and the same one with adapters."""
    torch.manual_seed(0)
    base = transformers.GPT2ForSequenceClassification(config())
    return base, peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(task_type="SEQ_CLS", **ADAPTERS))


def test_with_lora_what_is_trained_and_sent_is_what_peft_counts_and_the_rest_stays_to_the_last_bit() -> None:
    base, model = adapted()
    trainable, everything = model.get_nb_trainable_parameters()
    task = gs.Supervised(model, COLUMNS, COLUMNS)
    assert sum(task.layer_sizes) == trainable < everything / 5
    run = gs.simulate(experiment(task, wire=gs.Wire(mode="encode")), workers=1)
    assert run.models.shape == (3, trainable)
    messages = 2 * 3 * 3  # over two links of each node, in three rounds
    assert run.result["bytes_total"] / messages < 4 * trainable + 100
    before, after = model.state_dict(), run.state_dict("mean")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("lora" in name or "score" in name for name in changed)
    frozen = run.module(0).get_base_model().transformer.wte.weight
    assert torch.equal(frozen, base.transformer.wte.weight)


@pytest.mark.slow
def test_adapters_are_the_same_in_any_number_of_workers_and_in_rows_of_one_node() -> None:
    _, model = adapted()
    task = gs.Supervised(model, COLUMNS, COLUMNS)
    digests = {gs.simulate(experiment(task), workers=workers).models_sha256 for workers in (1, 2, 3)}
    assert len(digests) == 1
