"""What of a LoRA policy's move reaches vLLM: the share of it that each way of giving it bf16 weights gives, by step.

The shipped premise model with a bf16 base is trained as a run trains it: adapters of bf16 with fp32 masters, gradients
of advantages, random and new at each step, over rollouts that it sampled. The exact policy is transformers' and peft's
alone: the unmerged adapter's forward pass in fp32, with the same bf16 tensors. A share is a projection,
<found, exact> / <exact, exact> over the moves in log-probability of all response tokens. Then the time of `rounded`
against a plain cast, in turn.
"""

import argparse
import copy
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from restrain_openrlhf.demo.calibration import MOST_TOKENS
from restrain_openrlhf.demo.tasks import PREMISE
from restrain_openrlhf.demo.tokenizer import EOS, PAD
from restrain_openrlhf.hook.lora import rounded, whole_weights

# As the presets have them (configs/one_gpu).
RANK, LEARNING_RATE = 32, 1e-5
STEPS = (1, 10, 80)
PROBLEMS, BATCH = 8192, 128
# A q_proj of Qwen3-4B.
TIMED, REPEATS = (4096, 2560), 15
NEAREST, SHIPPED = "to nearest (peft's merge)", "thresholds (shipped)"
SHIPPED_BF16, OWN = "thresholds, activations in bf16", "the policy's own pass in bf16"
SIZES = SIZE, THRESHOLDS, ACTIVATIONS = (
    "nats a token: the exact move", "nats a token: noise of thresholds", "nats a token: noise of bf16 activations",
)  # fmt: skip


@dataclass(frozen=True)
class Rollouts:
    """`tokens` (B, T) with the prompts, and which of the last T - 1 are the response's, its end included."""

    tokens: torch.Tensor
    mask: torch.Tensor

    def __getitem__(self, rows: Any) -> "Rollouts":
        return Rollouts(self.tokens[rows], self.mask[rows])


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    options.add_argument("--problems", type=int, default=PROBLEMS)
    given = options.parse_args()
    torch.set_num_threads(1)
    found: dict[int, dict[str, list[float]]] = {step: defaultdict(list) for step in STEPS}
    for seed in track(given.seeds, "seeds", console=Console(stderr=True)):
        for step, numbers in shares(seed, given.problems):
            for name, number in numbers.items():
                found[step][name].append(number)
    table = Table("", *map(str, STEPS), title=f"by step: median of {len(given.seeds)} seeds (lowest to highest)")
    for name in found[STEPS[0]]:
        table.add_row(name, *(of_seeds(found[step][name], "{:.5f}" if name in SIZES else "{:.0%}") for step in STEPS))
    Console(width=160).print(table, cost())


def of_seeds(found: Sequence[float], written: str) -> str:
    """Median and range."""
    middle, low, high = (written.format(each) for each in (statistics.median(found), min(found), max(found)))
    return f"{middle} ({low} to {high})"


def shares(seed: int, problems: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers after each of STEPS, on rollouts, some of which were trained on."""
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype=torch.bfloat16).eval()
    rollouts = sampled(base, problems)
    config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    before = {dtype: log_probs(copy.deepcopy(base).to(dtype), rollouts) for dtype in (torch.float32, torch.bfloat16)}
    policy = get_peft_model(copy.deepcopy(base), config, autocast_adapter_dtype=False).eval()
    for step in trained(policy, rollouts):
        if step in STEPS:
            yield step, compared(policy, base, rollouts, before)


@torch.no_grad()
def sampled(model: Any, problems: int) -> Rollouts:
    """One rollout of each problem at temperature 1: tokens that many rollouts have in common would be rounded alike."""
    texts = [each.problem for each in PREMISE.training_problems(problems)]
    prompts = AutoTokenizer.from_pretrained(PREMISE.model)(texts, add_special_tokens=False, return_tensors="pt")
    tokens = model.generate(**prompts, do_sample=True, top_k=0, max_new_tokens=MOST_TOKENS, pad_token_id=PAD)
    responses = tokens[:, prompts["input_ids"].shape[1] :]
    ended = (responses == EOS).int()
    mask = torch.zeros_like(tokens[:, 1:], dtype=torch.bool)
    mask[:, -responses.shape[1] :] = ended.cumsum(1) - ended == 0
    return Rollouts(tokens, mask)


def trained(policy: Any, rollouts: Rollouts) -> Iterator[int]:
    """Steps as DeepSpeed's bf16 optimizer takes them (runtime/bf16_optimizer.py): bf16 gradients, fp32 masters."""
    parameters = [each for each in policy.parameters() if each.requires_grad]
    masters = [each.detach().float().requires_grad_() for each in parameters]
    optimizer = torch.optim.AdamW(masters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(1, max(STEPS) + 1):
        batch = rollouts[torch.randperm(len(rollouts.tokens))[:BATCH]]
        (-(torch.randn(BATCH, 1) * of_tokens(policy, batch) * batch.mask).sum() / batch.mask.sum()).backward()
        for master, parameter in zip(masters, parameters, strict=True):
            master.grad, parameter.grad = parameter.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, parameters, strict=True):
                parameter.copy_(master)
        yield step


def of_tokens(model: Any, rollouts: Rollouts) -> torch.Tensor:
    """Log-probabilities of every token but the first, (B, T - 1)."""
    logits = model(input_ids=rollouts.tokens).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(2, rollouts.tokens[:, 1:, None])[..., 0]


@torch.no_grad()
def log_probs(model: Any, rollouts: Rollouts) -> torch.Tensor:
    """Of the responses' tokens alone, one after the other."""
    places = torch.arange(len(rollouts.tokens)).split(256)
    return torch.cat([of_tokens(model, rollouts[rows])[rollouts.mask[rows]] for rows in places])


def compared(
    policy: Any, base: Any, rollouts: Rollouts, before: Mapping[torch.dtype, torch.Tensor]
) -> dict[str, float]:
    """Shares of the exact move by name, and the sizes of it and of the two kinds of noise, in nats a token."""
    exact = log_probs(copy.deepcopy(policy).float(), rollouts)
    move = exact - before[torch.float32]
    sent, nearest = as_sent(policy, base), copy.deepcopy(policy).merge_and_unload()
    own, low = log_probs(policy, rollouts), log_probs(sent, rollouts)
    high = log_probs(sent.float(), rollouts)

    def share(found: torch.Tensor, dtype: torch.dtype) -> float:
        return float(((found - before[dtype]) * move).sum() / move.square().sum())

    return {
        NEAREST: share(log_probs(nearest.float(), rollouts), torch.float32),
        SHIPPED: share(high, torch.float32),
        SHIPPED_BF16: share(low, torch.bfloat16),
        OWN: share(own, torch.bfloat16),
        SIZE: root_mean_square(move),
        THRESHOLDS: root_mean_square(high - exact),
        ACTIVATIONS: root_mean_square(own - exact),
    }


def as_sent(policy: Any, base: Any) -> Any:
    """The model of the weights that vLLM gets."""
    whole = dict(whole_weights(policy, policy.get_base_model().named_parameters()))
    model = copy.deepcopy(base)
    for name, parameter in model.named_parameters():
        parameter.data = whole[name].data.clone()
    return model


def root_mean_square(values: torch.Tensor) -> float:
    """Of all of them."""
    return float(values.square().mean().sqrt())


def cost() -> str:
    """Seconds of `rounded` for 10^8 weights, and their ratio to a plain cast's, in turn, on one thread."""
    weight = torch.randn(TIMED) / 50
    ways: tuple[Callable[[], Any], ...] = (
        lambda: weight.to(torch.bfloat16),
        lambda: rounded(weight, torch.bfloat16, "model.layers.0.self_attn.q_proj"),
    )
    pairs = [tuple(seconds(way) * 1e8 / weight.numel() for way in ways) for _ in range(REPEATS + 1)][1:]
    plain, ours = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratios = [one / other for other, one in pairs]
    return (
        f"10^8 weights to bf16 on one thread: {ours:.2f} s by thresholds, {plain:.2f} s to nearest; "
        f"the ratio is {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}, {REPEATS} pairs)"
    )


def seconds(way: Callable[[], Any]) -> float:
    """By the clock."""
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
