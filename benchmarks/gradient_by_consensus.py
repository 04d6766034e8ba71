"""What each method's first gradient points to, by the size of the frozen model's majority.

Fresh rollouts of a base model are scored by every method, and the policy gradient of each bin of prompts is compared
with two directions that other rollouts give: the gradient of pass@1, and that of the share of rollouts with the most
common answer (a shared shortcut, where there is one). Writes gradient_by_consensus.json and .png into --out.

    python benchmarks/gradient_by_consensus.py --model DIR --reference ref.jsonl --gold GOLD.jsonl --out DIR

--gold has rows {id, problem, answer}; the prompt is the bare problem. Without these it is the demo's model on some of
the demo's problems, with a frozen pass that is sampled here. On-policy no ratio is clipped, so a method's
gradient is that of the sum of (A⁺ + A⁻) log π over its rollouts. KL is left out, and so is OpenRLHF's token mean, which
divides all by one number that no cosine sees. Some minutes for 640 prompts and a model of 0.8 M parameters, on one
thread.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from restrain_openrlhf.answers import MATHEMATICS, GroupAnswers, canonical_key
from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass, from_reference
from restrain_openrlhf.commands.premise.learning import quarters
from restrain_openrlhf.commands.premise.shared import common_answers
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import read_rows
from restrain_openrlhf.data.problems import Problem
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.grade import grade_answers
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reference import ReferenceRow, load_reference
from restrain_openrlhf.reference.prompts import Prompt as HostPrompt
from restrain_openrlhf.scoring import score_group

mpl.use("Agg")

METHODS: Mapping[str, Mapping[str, object]] = {
    "gold": {"name": "grpo_gold"},
    "restrain": {"name": "restrain"},
    "restrain, no penalty": {"name": "restrain", "kappa": 0},
    "restrain, no prompt weight": {"name": "restrain", "prompt_weight": "none"},
    "restrain, majority labels": {"name": "restrain", "label_weights": "majority"},
    "srt easy": {"name": "srt_easy"},
    "ttrl": {"name": "ttrl"},
}
TRUE, SHARED = "pass@1", "shared answer"
PROMPTS_AT_ONCE = 32
DEMO_PROBLEMS, DEMO_N, DEMO_TOKENS = 128, 16, 14
ALL = "all"


@dataclass(frozen=True)
class Prompt:
    """One prompt with its frozen vote and its gold answer."""

    problem: str
    gold: str
    row: ReferenceRow


# From a prompt and its group's answers to one factor per rollout, (n,).
Weigh = Callable[[Prompt, Sequence[str | None]], np.ndarray]


@dataclass(frozen=True)
class Row:
    """One method on one bin of prompts; `bin` is `all` for all of them.

    `squares` is the bin's share of the method's squared advantage, `mean_advantage` the mean |A|, `norm` the length of
    the bin's part of the gradient (of all rollouts' mean). Cosines are with the gradient of pass@1 and with that of the
    share of the most common answer. `agreement` is the cosine of two estimates of the gradient from different rollouts:
    noise makes every cosine smaller than it is.
    """

    method: str
    bin: str
    prompts: int
    squares: float
    mean_advantage: float
    norm: float
    cosine_true: float
    cosine_shared: float
    agreement: float


@dataclass(frozen=True)
class Sampler:
    """The base model, and how its rollouts are sampled."""

    model: Any
    tokenizer: Any
    n: int
    temperature: float
    max_new_tokens: int

    @classmethod
    def load(cls, folder: Path, n: int, temperature: float, max_new_tokens: int) -> "Sampler":
        """In fp32."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return cls(model, AutoTokenizer.from_pretrained(folder), n, temperature, max_new_tokens)

    def draw(self, problems: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor, list[list[str | None]]]:
        """Tokens (prompts · n, T), a mask (prompts · n, T − 1) of targets in the response, answers by prompt."""
        ids = self.tokenizer(list(problems), add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            tokens = self.model.generate(
                input_ids=ids.repeat_interleave(self.n, 0), attention_mask=torch.ones(len(ids) * self.n, ids.shape[1]),
                do_sample=True, temperature=self.temperature, top_k=0, top_p=1.0, max_new_tokens=self.max_new_tokens,
            )  # fmt: skip
        response = tokens[:, ids.shape[1] :]
        ends = (response == self.tokenizer.eos_token_id).int()
        # The end itself is a token that was sampled; what comes after the first one is padding.
        mask = torch.cat([torch.zeros(len(tokens), ids.shape[1] - 1), (ends.cumsum(1) - ends == 0).float()], dim=1)
        decoded = self.tokenizer.batch_decode(response, skip_special_tokens=True)
        finished = ends.any(1).tolist()
        answers = [MATHEMATICS.voted_answer(text, not done, {}) for text, done in zip(decoded, finished, strict=True)]
        return tokens, mask, [answers[start : start + self.n] for start in range(0, len(answers), self.n)]

    def log_probs(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """log π of each response at the sampling temperature, (rollouts,)."""
        logits = self.model(input_ids=tokens).logits[:, :-1] / self.temperature
        taken = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]
        return (taken * mask).sum(1)


# A model, the prompts with gold, and the frozen model's rollouts on all of them.
Measured = tuple[Sampler, list[Prompt], FrozenPass]


@dataclass
class Estimate:
    """One gradient, summed up chunk by chunk, with the sums of |A| and A² of the rollouts that it is of."""

    gradient: torch.Tensor
    squares: float = 0.0
    sizes: float = 0.0

    def add(self, factors: np.ndarray, gradient: torch.Tensor) -> None:
        """One chunk's."""
        self.gradient += gradient
        self.squares += float((factors**2).sum())
        self.sizes += float(np.abs(factors).sum())


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser()
    options.add_argument("--model", type=Path, help="default: the demo's")
    options.add_argument("--reference", type=Path, help="the model's offline pass on the problems of --gold")
    options.add_argument("--gold", type=Path, help="rows {id, problem, answer}")
    options.add_argument("--out", type=Path, default=Path("runs/gradient_by_consensus"))
    options.add_argument("--shared", help="the shared answer; default: the most common one of the reference")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    whole = given.model and given.reference and given.gold
    if not whole and (given.model or given.reference or given.gold):
        options.error("--model, --reference and --gold belong together")
    sampler, prompts, frozen = from_files(given) if whole else of_the_demo()
    shared = canonical_key(given.shared) if given.shared else common_answers(frozen)[0].key
    rows = measure(sampler, prompts, shared)
    given.out.mkdir(parents=True, exist_ok=True)
    document = {"shared": shared, "seed": given.seed, "rows": [asdict(row) for row in rows]}
    (given.out / "gradient_by_consensus.json").write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    draw(rows).savefig(given.out / "gradient_by_consensus.png", dpi=120)
    show(rows)


def from_files(given: argparse.Namespace) -> Measured:
    """A model and its offline pass. Raises DataError where a template was applied, which this script does not do."""
    frozen, made = from_reference(given.reference, given.gold), load_reference(given.reference).provenance
    rows = {group.row.problem_hash: group.row for group in frozen.groups}
    found = [(one, rows.get(text_hash(one.problem))) for one in read_rows(given.gold, Problem)]
    prompts = [Prompt(one.problem, one.answer, row) for one, row in found if row is not None]
    if any(prompt.row.prompt_hash != prompt.row.problem_hash for prompt in prompts):
        raise DataError(f"{given.reference}: was sampled with a template; this script gives the model bare problems.")
    return Sampler.load(given.model, made.n, made.temperature, made.max_new_tokens), prompts, frozen


def of_the_demo() -> Measured:
    """The shipped model on its own problems, sampled here for the frozen pass."""
    from restrain_openrlhf.data.demo_tasks.tasks import PREMISE

    sampler, problems = Sampler.load(PREMISE.model, DEMO_N, 1.0, DEMO_TOKENS), PREMISE.training_problems(DEMO_PROBLEMS)
    asked = [HostPrompt(one.id, one.problem, one.problem, one.id) for one in problems]
    rows = [
        ReferenceRow.of_answers(prompt, group) for prompt, group in zip(asked, answers_to(asked, sampler), strict=True)
    ]
    groups = tuple(FrozenGroup(row, row.group, one.answer) for row, one in zip(rows, problems, strict=True))
    prompts = [Prompt(one.problem, one.answer, row) for one, row in zip(problems, rows, strict=True)]
    return sampler, prompts, FrozenPass(PREMISE.model, DEMO_N, DEMO_N, groups)


def answers_to(prompts: Sequence[HostPrompt], sampler: Sampler) -> list[list[str | None]]:
    """One group of answers per prompt, in order."""
    found: dict[int, list[str | None]] = {}
    for places in chunked([prompt.text for prompt in prompts]):
        found |= zip(places, sampler.draw([prompts[place].text for place in places])[2], strict=True)
    return [found[place] for place in range(len(prompts))]


def measure(sampler: Sampler, prompts: Sequence[Prompt], shared: str) -> list[Row]:
    """All methods by bin, then on all prompts. Every gradient has two estimates, each from rollouts of its own."""
    directions = {TRUE: is_right, SHARED: lambda prompt, answers: centred([key_of(one) == shared for one in answers])}
    bins = {
        str(of): [one for one in prompts if of.low <= one.row.majority_count <= of.high] for of in quarters(sampler.n)
    }
    towards = [gradients(sampler, bins, directions, f"directions, {half}") for half in ("first", "second")]
    true, common = (sum(half[name, of].gradient for half in towards for of in bins) for name in (TRUE, SHARED))
    weigh = {name: by_method(block, prompts) for name, block in METHODS.items()}
    halves = [gradients(sampler, bins, weigh, f"methods, {half}") for half in ("first", "second")]
    return [row for name in METHODS for row in rows_of(name, bins, halves, (true, common), sampler.n)]


def key_of(answer: str | None) -> str | None:
    """None for a missing answer."""
    return None if answer is None else canonical_key(answer)


def centred(reward: Sequence[bool]) -> np.ndarray:
    """Rewards less their mean: the gradient of the expected reward, with less noise."""
    rewards = np.array(reward, dtype=float)
    return rewards - rewards.mean()


def is_right(prompt: Prompt, answers: Sequence[str | None]) -> np.ndarray:
    """The factors of pass@1."""
    return centred(grade_answers("", answers, prompt.gold).correct)


def by_method(block: Mapping[str, object], prompts: Sequence[Prompt]) -> Weigh:
    """A method's net advantages; 0 on the prompts that it does not train on."""
    method = build(parse_settings(block))
    shares = [prompt.row.majority_share for prompt in prompts]
    kept = set(range(len(prompts)) if method.selection is None else method.selection(shares))
    trained = {prompt.row.prompt_hash for place, prompt in enumerate(prompts) if place in kept}

    def factors(prompt: Prompt, answers: Sequence[str | None]) -> np.ndarray:
        if prompt.row.prompt_hash not in trained:
            return np.zeros(len(answers))
        group = GroupAnswers.of(MATHEMATICS, answers, {})
        return score_group(method, group, prompt.row, prompt.gold, prompt.problem).pair.net

    return factors


def gradients(
    sampler: Sampler, bins: Mapping[str, Sequence[Prompt]], weigh: Mapping[str, Weigh], what: str
) -> dict[tuple[str, str], Estimate]:
    """The gradient of the sum of factors · log π by name and bin, from one fresh group of rollouts per prompt."""
    parameters = list(sampler.model.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    found = {(name, of): Estimate(torch.zeros(size)) for name in weigh for of in bins}
    chunks = [
        (of, [prompts[place] for place in places])
        for of, prompts in bins.items()
        for places in chunked([prompt.problem for prompt in prompts])
    ]
    for of, chunk in track(chunks, what, console=Console(stderr=True)):
        tokens, mask, answers = sampler.draw([prompt.problem for prompt in chunk])
        log_probs = sampler.log_probs(tokens, mask)
        for name, rule in weigh.items():
            factors = np.concatenate([rule(prompt, group) for prompt, group in zip(chunk, answers, strict=True)])
            if factors.any():
                total = (torch.tensor(factors, dtype=torch.float32) * log_probs).sum()
                parts = torch.autograd.grad(total, parameters, retain_graph=True)
                found[name, of].add(factors, torch.cat([part.flatten() for part in parts]))
    return found


def chunked(problems: Sequence[str]) -> Iterator[list[int]]:
    """Places of problems of equal length in characters together: the demo's tokenizer has a token for each."""
    for length in sorted({len(problem) for problem in problems}):
        same = [place for place, problem in enumerate(problems) if len(problem) == length]
        yield from (same[start : start + PROMPTS_AT_ONCE] for start in range(0, len(same), PROMPTS_AT_ONCE))


def rows_of(
    name: str,
    bins: Mapping[str, Sequence[Prompt]],
    halves: Sequence[Mapping[tuple[str, str], Estimate]],
    towards: tuple[torch.Tensor, torch.Tensor],
    n: int,
) -> Iterator[Row]:
    """One method's rows: each bin, then all prompts. `towards`: the gradients of pass@1 and of the shared answer."""
    squares = sum(half[name, of].squares for half in halves for of in bins)
    for label, members in {**{of: [of] for of in bins}, ALL: list(bins)}.items():
        parts = [[half[name, of] for of in members] for half in halves]
        first, second = (sum(part.gradient for part in half) for half in parts)
        prompts = sum(len(bins[of]) for of in members)
        flat = [part for half in parts for part in half]
        yield Row(
            method=name,
            bin=label,
            prompts=prompts,
            squares=sum(part.squares for part in flat) / squares if squares else 0.0,
            mean_advantage=sum(part.sizes for part in flat) / (2 * n * prompts) if prompts else 0.0,
            norm=float((first + second).norm()) / (2 * n * sum(map(len, bins.values()))),
            cosine_true=cosine(first + second, towards[0]),
            cosine_shared=cosine(first + second, towards[1]),
            agreement=cosine(first, second),
        )


def cosine(one: Any, other: Any) -> float:
    """0 where one of them is 0."""
    lengths = float(one.norm() * other.norm())
    return float(one @ other) / lengths if lengths else 0.0


def draw(rows: Sequence[Row]) -> Figure:
    """Share of squared advantage, and the two cosines, by bin; one group of bars per method."""
    panels = (
        ("share of squared advantage", "squares"),
        ("cosine with the gradient of pass@1", "cosine_true"),
        ("cosine with the most common answer's", "cosine_shared"),
    )
    figure = Figure(figsize=(15, 5), layout="constrained")
    names, bins = list(dict.fromkeys(row.method for row in rows)), list(dict.fromkeys(row.bin for row in rows))
    for axes, (title, field) in zip(figure.subplots(1, 3), panels, strict=True):
        shown = [of for of in bins if of != ALL or field != "squares"]
        for place, of in enumerate(shown):
            heights = [getattr(row, field) for row in rows if row.bin == of]
            at = np.arange(len(names)) + (place - (len(shown) - 1) / 2) * 0.8 / len(shown)
            color = "black" if of == ALL else mpl.colormaps["viridis"](place / max(1, len(bins) - 2))
            axes.bar(at, heights, 0.8 / len(shown), color=color, label="all prompts" if of == ALL else f"M {of}")
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_title(title, fontsize=10)
    figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return figure


def show(rows: Sequence[Row]) -> None:
    """All numbers as a table."""
    table = Table(
        "method", "majority", "prompts", "squared A", "mean |A|", "norm", "cos pass@1", "cos shared", "agreement"
    )
    for row in rows:
        numbers = (row.cosine_true, row.cosine_shared, row.agreement)
        table.add_row(
            row.method, row.bin, str(row.prompts), f"{row.squares:.0%}", f"{row.mean_advantage:.3f}", f"{row.norm:.4f}",
            *(f"{number:+.2f}" for number in numbers),
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
