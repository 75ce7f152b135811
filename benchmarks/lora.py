"""Fine-tuning a small transformer together, with LoRA: kilobytes per message in place of the model.

    python benchmarks/lora.py ag-news        a classifier of news on nodes whose topics differ, against training alone
    python benchmarks/lora.py shakespeare    a language model of letters on nodes that each speak other roles

No model is downloaded. For AG News a BERT of one layer is made from its configuration; all it knows of the language is
word vectors from how often words stand in one text, in some of a fifth of the training texts, without their classes,
which no node holds. It says nothing about what a pretrained model would reach. For Shakespeare a GPT-2 of two layers
first learns the language from a fifth of the texts, which no node holds. The nodes train and send the adapters of peft,
and the classifier, alone. Needs transformers and peft (gossamer[lora]), and the data in the directory that
GOSSAMER_DATA names. Some minutes on one core.
"""

import argparse
import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import gossamer as gs

WIDTH, LAYERS, HEADS = 64, 2, 4


def pretrained(texts: Tensor, words: int, steps: int) -> nn.Module:
    """A language model that has read these texts."""
    torch.set_num_threads(1)  # the same everywhere
    torch.manual_seed(0)
    sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": words, "n_positions": texts.shape[1]}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, pad_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        some = texts[torch.randint(len(texts), (32,))]
        loss = model(input_ids=some, labels=some.masked_fill(some == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"  pretraining, step {step}: loss {loss.item():.2f}", flush=True)
    return model


def with_lora(model: nn.Module, **settings: object) -> Callable[[], nn.Module]:
    adapters = LoraConfig(r=8, lora_alpha=16, **settings)
    return lambda: get_peft_model(copy.deepcopy(model), adapters)


def told(name: str, run: gs.Run, experiment: gs.Experiment, key: str) -> None:
    """A line of the table: the metric, and the bytes that one node sends in a round."""
    result = run.result
    sent = result["bytes_total"] / experiment.nodes / experiment.rounds
    print(
        f"{name:12} seed {experiment.seed}  {key} {result[key]:7.2%}  {sent / 1000:8.1f} kB per node and round",
        flush=True,
    )


def word_vectors(texts: Tensor, words: int, width: int) -> Tensor:
    """(words, width): the largest components of the positive pointwise mutual information of words in these texts."""
    present = torch.zeros(len(texts), words).scatter_(1, texts.long(), 1.0)
    present[:, 0] = 0  # which fills short texts up
    together, often = present.T @ present, present.sum(0).clamp(min=1)
    information = (together * len(texts) / (often[:, None] * often)).clamp(min=1).log()
    torch.manual_seed(0)
    left, sizes, _ = torch.svd_lowrank(information, width, niter=3)
    vectors = left * sizes.sqrt()
    return vectors / vectors.std()


def columns(texts: Tensor, classes: Tensor) -> dict[str, Tensor]:
    return {"input_ids": texts.long(), "attention_mask": (texts != 0).long(), "labels": classes}


def ag_news(options: argparse.Namespace) -> None:
    arrays = gs.AgNews(train_file=options.train_file, vocabulary=2000, length=24).arrays()
    public = torch.arange(len(arrays.train[0])) % 5 == 0
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
    bert = BertForSequenceClassification(
        BertConfig(
            vocab_size=arrays.inputs[0], **sizes, max_position_embeddings=24, num_labels=4, initializer_range=0.1
        )
    )
    bert.bert.embeddings.word_embeddings.weight.data = word_vectors(
        arrays.train[0][public][:3000], arrays.inputs[0], 128
    )
    task = gs.Supervised(
        model=with_lora(bert, task_type="SEQ_CLS", target_modules=["query", "value"]),
        train=columns(*(column[~public] for column in arrays.train)),
        test=columns(*arrays.test),
    )
    experiment = gs.Experiment(
        name="ag-news-lora", nodes=6, rounds=options.rounds, local_steps=4, batch_size=16, task=task,
        partition=gs.Dirichlet(0.5), topology=gs.Ring(), optimizer=gs.AdamW(5e-3, schedule=gs.Linear()),
        evaluation=gs.Evaluation(every=1000, samples=400, nodes="all"),
    )  # fmt: skip
    loaded = experiment.load_task()
    module = loaded.module_with(loaded.initial_model(0), loaded.buffers)
    print(
        f"{sum(loaded.layer_sizes)} parameters are trained and sent, of {sum(p.numel() for p in module.parameters())}"
    )
    for seed in range(options.seeds):
        for name, algorithm in (("alone", gs.LocalOnly()), ("together", gs.Dpsgd())):
            chosen = replace(experiment, seed=seed, algorithm=algorithm)
            told(name, gs.simulate(chosen, workers=options.workers, task=loaded), chosen, "accuracy_mean")


def next_letters(outputs: Tensor, letters: Tensor) -> Tensor:
    """The share of each text's letters that were foretold."""
    return (outputs[:, :-1].argmax(-1) == letters[:, 1:]).float().mean(1)


def shakespeare(options: argparse.Namespace) -> None:
    arrays = gs.Shakespeare().arrays()
    texts, tests = arrays.train[0].long(), arrays.test[0].long()
    public = torch.arange(len(texts)) % 5 == 0
    base = pretrained(texts[public], arrays.outputs, options.pretraining)
    assert arrays.clients is not None
    task = gs.Supervised(
        model=with_lora(base, task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True),
        train={"input_ids": texts[~public], "labels": texts[~public]},
        test={"input_ids": tests, "labels": tests},
        clients=arrays.clients[~public.numpy()],
        score=next_letters,
    )
    experiment = gs.Experiment(
        name="shakespeare-lora", nodes=8, rounds=options.rounds, local_steps=4, batch_size=8, task=task,
        partition=gs.ByClient(), topology=gs.Ring(), optimizer=gs.AdamW(3e-3, schedule=gs.Linear()),
        evaluation=gs.Evaluation(every=1000, samples=200, nodes="all"),
    )  # fmt: skip
    loaded = experiment.load_task()
    print(f"{sum(loaded.layer_sizes)} parameters are trained and sent, of {sum(p.numel() for p in base.parameters())}")
    for name, algorithm in (("alone", gs.LocalOnly()), ("together", gs.Dpsgd())):
        for seed in range(options.seeds):
            chosen = replace(experiment, seed=seed, algorithm=algorithm)
            told(name, gs.simulate(chosen, workers=options.workers, task=loaded), chosen, "accuracy_mean")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["ag-news", "shakespeare"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretraining", type=int, default=400, help="steps before the nodes begin")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--train-file", default="train.csv", help="of AG News, if it is another")
    chosen = parser.parse_args()
    (ag_news if chosen.data == "ag-news" else shakespeare)(chosen)
