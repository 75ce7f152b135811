"""A small language model, fine-tuned together with LoRA.

Run me, with Shakespeare in the directory data: GOSSAMER_DATA=data python examples/lora_shakespeare.py

A GPT-2 of two layers, made here, learns to write from a fifth of Shakespeare's texts. Then eight nodes, each with the
roles of its own, fine-tune its adapters: alone, together, and together with few bytes. Nothing but the adapters is
trained and sent. Needs transformers and peft: pip install 'gossamer[lora]'. Some minutes on one core.
"""

import argparse
import copy
from dataclasses import replace

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import gossamer as gs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--pretraining", type=int, default=300, help="steps before the nodes begin")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

LENGTH = 80  # letters per text
torch.set_num_threads(1)
torch.manual_seed(0)

# Shakespeare as texts of 80 letters that overlap by half, and whose role each is.
plays = gs.Shakespeare().load()
letters, tests = (plays.prepare(part[0][:: LENGTH // 2]) for part in (plays.train, plays.test))
roles = plays.clients[:: LENGTH // 2]
tests = tests[:: max(1, len(tests) // 200)]  # some of all roles
public = torch.arange(len(letters)) % 5 == 0

# The model that everybody starts from. Yours may come from_pretrained.
sizes = {"vocab_size": 80, "n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 4}
config = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None, loss_type="ForCausalLM")
base = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(base.parameters(), 3e-3)
for step in range(options.pretraining):
    some = letters[public][torch.randint(int(public.sum()), (16,))]
    loss = base(input_ids=some, labels=some).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 100 == 0:
        print(f"before the nodes begin, step {step + 1}: loss {loss.item():.2f}", flush=True)


def foretold(outputs: Tensor, texts: Tensor) -> Tensor:
    """The share of each text's letters that the model foretells."""
    return (outputs[:, :-1].argmax(-1) == texts[:, 1:]).float().mean(1)


adapters = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True)
task = gs.Supervised(
    model=lambda: get_peft_model(copy.deepcopy(base), adapters),
    train={"input_ids": letters[~public], "labels": letters[~public]},
    test={"input_ids": tests, "labels": tests},
    clients=roles[~public.numpy()],
    score=foretold,
).load()
experiment = gs.Experiment(
    name="shakespeare-lora", task=task, nodes=8, rounds=options.rounds, local_steps=4, batch_size=8, seed=options.seed,
    partition=gs.ByClient(), topology=gs.Ring(), optimizer=gs.AdamW(3e-3, schedule=gs.Linear()),
    evaluation=gs.Evaluation(every=options.rounds, nodes="all"),
)  # fmt: skip
everything = sum(parameter.numel() for parameter in base.parameters())
print(f"{sum(task.layer_sizes)} parameters are trained and sent, of {everything} of the model")
start = task.evaluate(task.initial_model(0), torch.arange(len(tests)).numpy())[1]
print(f"{start:6.1%} of the letters foretold before")
for name, algorithm in (("alone", gs.LocalOnly()), ("full sharing", gs.Dpsgd()), ("few bytes", gs.Auto())):
    result = gs.simulate(replace(experiment, algorithm=algorithm), workers=1, task=task).result
    sent = result["bytes_total"] / experiment.nodes / experiment.rounds
    print(f"{result['accuracy_mean']:6.1%} {name}, {sent / 1000:.1f} kB per node and round", flush=True)
