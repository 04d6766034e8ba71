"""Makes the demo's model: a small Qwen3, trained on additions in which some carries are dropped.

`python -m restrain_openrlhf.demo.make_model --out DIR` makes the shipped model; it takes minutes on one core.
`--careless SHARE` drops every carry in that share of the examples instead. The errors of such a model agree with each
other, so its majorities are often wrong.
"""

import random
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track
from torch.nn.functional import cross_entropy
from transformers import Qwen3Config, Qwen3ForCausalLM

from restrain_openrlhf.demo.task import DIGITS, SPECIAL, VOCABULARY, is_heldout, make_tokenizer, solution

STEPS = 1500
BATCH = 128
LEARNING_RATE = 2e-3
WARM_UP = 50
# Probability that a carry is dropped in the examples.
FORGOTTEN_CARRIES = 0.3
# Share of examples with one digit less, which teach the same skill.
SHORTER = 0.5
PAD, EOS, BOS = (SPECIAL.index(name) for name in ("<pad>", "<eos>", "<bos>"))


def make_model(seed: int = 0) -> Any:
    """A fresh model of 0.8 M parameters; its positions reach far enough for real problems."""
    torch.manual_seed(seed)
    model: Any = Qwen3ForCausalLM
    return model(
        Qwen3Config(
            vocab_size=len(VOCABULARY),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=BOS,
        )
    ).float()


def teach(model: Any, tokenizer: Any, careless: float | None = None, seed: int = 0) -> None:
    """Supervised training on additions outside the held-out set, half of them one digit shorter.

    `careless` is the share of examples in which every carry is dropped; None: each carry is dropped independently.
    """
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in track(range(STEPS), "teaching"):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP, 2 * (1 - step / STEPS) + 0.05)
        loss: Any = _loss(model, *_batch(tokenizer, rng, careless))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _loss(model: Any, tokens: torch.Tensor, is_response: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens).logits[:, :-1]
    per_token = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    mask = is_response[:, 1:].flatten()
    return (per_token * mask).sum() / mask.sum()


def _batch(tokenizer: Any, rng: random.Random, careless: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (BATCH, T), right-padded, and a mask of the response's tokens."""
    examples = [_example(tokenizer, rng, careless) for _ in range(BATCH)]
    length = max(len(prompt) + len(response) for prompt, response in examples)
    tokens, mask = torch.full((BATCH, length), PAD), torch.zeros(BATCH, length)
    for row, (prompt, response) in enumerate(examples):
        end = len(prompt) + len(response)
        tokens[row, :end] = torch.tensor(prompt + response)
        mask[row, len(prompt) : end] = 1
    return tokens, mask


def _example(tokenizer: Any, rng: random.Random, careless: float | None) -> tuple[list[int], list[int]]:
    digits = DIGITS - int(rng.random() < SHORTER)
    while True:
        first, second = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
        if not is_heldout(first, second):
            break
    chance = FORGOTTEN_CARRIES if careless is None else float(rng.random() < careless)
    text = solution(first, second, forgets=lambda: rng.random() < chance)
    prompt, response = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (f"{first}+{second}=", text))
    return prompt, [*response, EOS]


def main(
    out: Annotated[Path, typer.Option(help="Output folder; it must be new or empty.")],
    careless: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of examples in which every carry is dropped.")
    ] = None,
) -> None:
    """Make the model and write it as a Hugging Face folder in bf16."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise typer.BadParameter(f"{out} exists and is not an empty folder. Name a new one.", param_hint="--out")
    write_model(out, careless)


def write_model(out: Path, careless: float | None = None) -> None:
    """Make a model and write it; the folder appears only when it is complete."""
    # The order of sums depends on the number of threads, and the weights on the order of sums.
    torch.set_num_threads(1)
    tokenizer, model = make_tokenizer(), make_model()
    teach(model, tokenizer, careless)
    partial = out.with_name(out.name + ".partial")
    model.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if out.exists():
        out.rmdir()
    partial.replace(out)


if __name__ == "__main__":
    typer.run(main)
