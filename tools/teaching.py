"""How each base model was taught: the stages by its name, and supervised training on examples with errors."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.progress import track
from torch.nn.functional import cross_entropy
from transformers import Qwen3Config, Qwen3ForCausalLM

from restrain_openrlhf.data.demo_tasks.premise import PREMISE
from tools.calculator_examples import calculator_example
from tools.examples import careless_example, product_example, sum_example
from tools.language_examples import program_example, word_example
from tools.tokenizer import BOS, EOS, PAD, VOCABULARY

BATCH = 128

Example = Callable[[random.Random], tuple[str, str]]


@dataclass(frozen=True)
class Stage:
    """Some steps on one kind of example; the learning rate rises for `warm_up` steps, and falls over the second half.

    `last` is the share of the learning rate at the end; `betas` are AdamW's; `batch` examples make a step.
    """

    example: Example
    steps: int
    learning_rate: float
    warm_up: int
    last: float
    betas: tuple[float, float] = (0.9, 0.999)
    batch: int = BATCH

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.learning_rate * min(1.0, (step + 1) / self.warm_up, 2 * (1 - step / self.steps) + self.last)


_PREMISE = partial(Stage, last=0.02, betas=(0.9, 0.95))
_ADDITION = partial(Stage, steps=1500, learning_rate=2e-3, warm_up=50, last=0.05)

RECIPES: Mapping[str, tuple[Stage, ...]] = {
    # The second stage weakens the shortcut: the first alone gives up in about .18 (docs/start/demo.md).
    "premise": (
        _PREMISE(partial(product_example, strength=0.42), steps=800, learning_rate=2e-3, warm_up=50),
        _PREMISE(partial(product_example, strength=0.38), steps=150, learning_rate=5e-4, warm_up=10),
    ),
    "addition": (_ADDITION(sum_example),),
    "words": (_PREMISE(partial(word_example, strength=0.45), steps=500, learning_rate=3e-3, warm_up=40),),
    "programs": (_PREMISE(partial(program_example, strength=0.45), steps=500, learning_rate=3e-3, warm_up=40),),
    "careless": (_ADDITION(careless_example),),
    # Of the premise task's model, which goes on answering in one turn.
    "calculator": (
        _PREMISE(calculator_example, steps=500, learning_rate=1e-3, warm_up=20, batch=48),
        _PREMISE(
            partial(calculator_example, single=0.2, longest=3), steps=450, learning_rate=1.5e-3, warm_up=20, batch=64
        ),
    ),
}


def untaught(name: str) -> Any:
    """What a recipe begins with: a fresh model, or for `calculator` the premise task's shipped one."""
    models: Any = Qwen3ForCausalLM
    return models.from_pretrained(PREMISE.model).float() if name == "calculator" else make_model()


def make_model(seed: int = 0) -> Any:
    """A fresh Qwen3 of 0.8 M parameters; its positions reach far enough for real problems."""
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


def teach(model: Any, tokenizer: Any, stages: Sequence[Stage]) -> Any:
    """The model after all stages. Each begins from the weights in bf16, as shipped, with an optimizer of its own."""
    for number, stage in enumerate(stages):
        if number:
            model = model.to(torch.bfloat16).float()
        _teach(model, tokenizer, stage, random.Random(number))
    return model


def _teach(model: Any, tokenizer: Any, stage: Stage, rng: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=stage.learning_rate, betas=stage.betas)
    for step in track(range(stage.steps), "teaching"):
        for group in optimizer.param_groups:
            group["lr"] = stage.rate(step)
        loss: Any = _loss(model, *_batch(tokenizer, [stage.example(rng) for _ in range(stage.batch)]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _loss(model: Any, tokens: torch.Tensor, is_response: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens).logits[:, :-1]
    per_token = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    mask = is_response[:, 1:].flatten()
    return (per_token * mask).sum() / mask.sum()


def _batch(tokenizer: Any, examples: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B, T), right-padded, and a mask of the response's tokens."""
    pairs = [
        [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (prompt, response)]
        for prompt, response in examples
    ]
    length = max(len(prompt) + len(response) for prompt, response in pairs) + 1
    tokens, mask = torch.full((len(pairs), length), PAD), torch.zeros(len(pairs), length)
    for row, (prompt, response) in enumerate(pairs):
        end = len(prompt) + len(response) + 1
        tokens[row, :end] = torch.tensor([*prompt, *response, EOS])
        mask[row, len(prompt) : end] = 1
    return tokens, mask
