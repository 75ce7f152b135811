"""Fine-tuning a small transformer together, with LoRA: kilobytes per message in place of the model.

    python benchmarks/lora.py                 tables of docs/results/lora.md: news, on nodes whose topics differ
    python benchmarks/lora.py --validate      the same on training texts that are held out, to choose settings with

No model is downloaded: a BERT of one layer is made from its configuration. What it knows of the language is word
vectors from how often words stand in one text, and in what directions summaries of texts differ, both from a fifth of
the training texts, without their classes, which no node holds. It says nothing about what a pretrained model would
reach. Nodes train and send the adapters of peft, and the classifier, alone. Needs transformers and peft
(gossamer[lora]), and AG News in the directory that GOSSAMER_DATA names.
"""

import argparse
import copy
import time
from dataclasses import replace

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import gossamer as gs

WIDTH, WORDS, LENGTH = 128, 5000, 32
ALGORITHMS = {"alone": gs.LocalOnly(), "full sharing": gs.Dpsgd(), "auto": gs.Auto()}
PARTITIONS = {"shards": gs.LabelShards(2), "dirichlet": gs.Dirichlet(0.5)}


def word_vectors(texts: Tensor) -> Tensor:
    """(WORDS, WIDTH): the largest components of the positive pointwise mutual information of words in these texts."""
    present = torch.zeros(len(texts), WORDS).scatter_(1, texts.long(), 1.0)
    present[:, :2] = 0  # what fills short texts up, and words without a number
    together, often = present.T @ present, present.sum(0).clamp(min=1)
    information = (together * len(texts) / (often[:, None] * often)).clamp(min=1).log()
    left, sizes, _ = torch.svd_lowrank(information, WIDTH, niter=3)
    vectors = left * sizes.sqrt()
    return vectors / vectors.std()


def base_model(texts: Tensor) -> nn.Module:
    """A BERT that knows the words of these texts, and otherwise nothing."""
    torch.set_num_threads(1)  # the same everywhere
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=WORDS + 1, **sizes, **dropout, max_position_embeddings=LENGTH + 1, num_labels=4)
    bert = BertForSequenceClassification(config)
    bert.bert.embeddings.word_embeddings.weight.data[:WORDS] = word_vectors(texts)
    whiten(bert.bert, columns(texts[:2000], torch.zeros(2000)))
    return bert


def whiten(bert: nn.Module, texts: dict[str, Tensor]) -> None:
    """Have the summaries of texts differ, in every direction as much: what texts have in common hides it at first."""
    with torch.no_grad():
        states = bert(input_ids=texts["input_ids"], attention_mask=texts["attention_mask"]).last_hidden_state[:, 0]
        centre = states.mean(0)
        _, sizes, directions = torch.linalg.svd((states - centre) / len(states) ** 0.5, full_matrices=False)
        bert.pooler.dense.weight.copy_(directions / sizes.clamp(min=0.02 * sizes[0])[:, None])
        bert.pooler.dense.bias.copy_(-bert.pooler.dense.weight @ centre)


def columns(texts: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """Every text with a sign before it, at whose place BERT sums it up."""
    texts = torch.cat([torch.full((len(texts), 1), WORDS), texts.long()], 1)
    return {"input_ids": texts, "attention_mask": (texts != 0).long(), "labels": classes}


def task(options: argparse.Namespace) -> gs.Supervised:
    arrays = gs.AgNews(train_file=options.train_file, vocabulary=WORDS, length=LENGTH).arrays()
    public = torch.arange(len(arrays.train[0])) % 5 == 0
    base = base_model(arrays.train[0][public])
    adapters = LoraConfig(r=8, lora_alpha=16, task_type="SEQ_CLS", target_modules=["query", "value"])
    train, test = [column[~public] for column in arrays.train], list(arrays.test)
    if options.validate:
        held = torch.from_numpy(np.random.default_rng(7).random(len(train[0])) < 0.1)
        train, test = ([column[part] for column in train] for part in (~held, held))
    return gs.Supervised(lambda: get_peft_model(copy.deepcopy(base), adapters), columns(*train), columns(*test))


def main(options: argparse.Namespace) -> None:
    experiment = gs.Experiment(
        name="ag-news-lora", nodes=options.nodes, rounds=options.rounds, local_steps=4, batch_size=16,
        task=task(options), partition=PARTITIONS[options.partition], topology=gs.Ring(),
        optimizer=gs.AdamW(options.learning_rate, schedule=gs.Linear()),
        evaluation=gs.Evaluation(every=1000, nodes="all"),
    )  # fmt: skip
    loaded = experiment.load_task()
    module = loaded.module_with(loaded.initial_model(0), loaded.buffers)
    sent, everything = sum(loaded.layer_sizes), sum(p.numel() for p in module.parameters())
    print(f"{sent} parameters are trained and sent, of {everything}; {loaded.num_test_samples} texts are tested")
    for seed in options.seeds:
        for name in options.algorithms:
            chosen = replace(experiment, seed=seed, algorithm=ALGORITHMS[name])
            begun = time.process_time()
            result = gs.simulate(chosen, workers=1, task=loaded).result
            sent = result["bytes_total"] / chosen.nodes / chosen.rounds
            print(
                f"seed {seed}  {name:12}  accuracy {result['accuracy_mean']:.1%} ({result['accuracy_min']:.1%} to "
                f"{result['accuracy_max']:.1%})  {sent / 1000:.2f} kB per node and round  "
                f"{time.process_time() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--validate", action="store_true", help="test on training texts that are held out")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--partition", default="shards", choices=list(PARTITIONS))
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--train-file", default="train.csv", help="of AG News, if it is another")
    main(parser.parse_args())
