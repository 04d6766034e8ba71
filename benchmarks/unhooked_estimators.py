"""What each of OpenRLHF's own estimators makes of the service's rewards, against RESTRAIN's advantages.

For a trainer without the advantage hook. Groups of 16 are sampled from models of three strengths; the host's own
`compute_advantages_and_returns` turns each kind of reward into advantages. Printed are the relative error of the
advantages (Euclidean, over rollouts), the share of rollouts whose sign is wrong, and the cosine and relative error of
the policy gradient of a softmax over answers: first while no ratio is clipped (what A⁺ and A⁻ share), then with ratios
so far off that many are (what only the pair carries). KL is left out of the gradient.
"""

import argparse
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.method import GroupScore, build, parse_settings

N, PROMPTS, LABELS = 16, 256, 24
MISSING = 0.03
CLIP = 0.2
# Concentration of the sampled answers: nearly uniform, mixed, and confident models.
STRENGTHS = {"weak": 0.15, "middling": 0.6, "strong": 2.0}
ESTIMATORS = (
    ("flash_reinforce", False),
    ("reinforce", True),
    ("reinforce", False),
    ("dr_grpo", False),
    ("rloo", False),
    ("reinforce_baseline", False),
    ("group_norm", False),
)


def sample(chance: np.random.Generator, strength: float) -> tuple[list[list[int | None]], np.ndarray]:
    """Answers of PROMPTS groups, one label preferred by a margin that differs between prompts; and the policy's shares.

    The shares are (prompts, LABELS + 1): a missing answer (None) is a label of its own.
    """
    groups: list[list[int | None]] = []
    policy = np.zeros((PROMPTS, LABELS + 1))
    for prompt in range(PROMPTS):
        logits = chance.normal(size=LABELS)
        logits[0] += chance.exponential(4 * strength)
        policy[prompt, :LABELS] = (1 - MISSING) * np.exp(logits) / np.exp(logits).sum()
        policy[prompt, LABELS] = MISSING
        answers = chance.choice(LABELS + 1, size=N, p=policy[prompt])
        groups.append([None if answer == LABELS else int(answer) for answer in answers])
    return groups, policy


def relabel(answers: list[int | None]) -> list[int | None]:
    """Classes numbered by first appearance."""
    numbers: dict[int, int] = {}
    return [None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]


def host_advantages(rewards: np.ndarray, estimator: str, no_std_norm: bool) -> np.ndarray:
    """The host's advantages of rollouts of one token each; rewards (prompts, n) in, (prompts, n) out."""
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    count = rewards.size
    ones = torch.ones(count, 1)
    experience = Experience(
        index=list(range(count)), rewards=torch.tensor(rewards.reshape(-1)), action_mask=ones, kl=ones * 0, info={}
    )
    advantage = SimpleNamespace(estimator=estimator, no_std_norm=no_std_norm, gamma=1.0, lambd=1.0)
    arguments = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=N, max_new_tokens=8),
        reward=SimpleNamespace(clip_range=(-1e9, 1e9), overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
    maker.args, maker.strategy = arguments, SimpleNamespace(args=arguments)
    maker.advantage_estimator, maker.kl_ctl = estimator, SimpleNamespace(value=0.0)
    (made,) = maker.compute_advantages_and_returns([experience])
    values: np.ndarray = made.advantages.double().numpy().reshape(rewards.shape)
    return values


def gradient(
    groups: list[list[int | None]], positive: np.ndarray, negative: np.ndarray, ratios: np.ndarray, policy: np.ndarray
) -> np.ndarray:
    """Gradient of the clipped surrogate with respect to each prompt's logits, (prompts, labels + 1)."""
    total = np.zeros((len(groups), LABELS + 1))
    for index, answers in enumerate(groups):
        labels = [LABELS if answer is None else answer for answer in answers]
        for rollout, label in enumerate(labels):
            ratio = ratios[index, rollout]
            slope = positive[index, rollout] * (ratio < 1 + CLIP) + negative[index, rollout] * (ratio > 1 - CLIP)
            total[index] += slope * ratio * (np.eye(LABELS + 1)[label] - policy[index])
    return total


def split(net: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One advantage as a pair: a trainer without the hook clips it by its sign."""
    return np.maximum(net, 0), np.minimum(net, 0)


def compare(exact: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Cosine, and relative error after the best common factor, which a learning rate could make up for."""
    dot, size = float((exact * found).sum()), float((found**2).sum())
    if size == 0:
        return 0.0, 1.0
    cosine = dot / np.sqrt(size * float((exact**2).sum()))
    return cosine, float(np.sqrt(max(0.0, 1 - cosine**2)))


def rows(
    name: str, scores: list[GroupScore], groups: list[list[int | None]], ratios: np.ndarray, policy: np.ndarray
) -> list[list[str]]:
    """One row per reward and estimator."""
    positive = np.stack([score.pair.positive for score in scores])
    negative = np.stack([score.pair.negative for score in scores])
    net, expected = positive + negative, np.stack([score.rewards for score in scores])
    near, far = np.ones_like(ratios), ratios
    exact_near, exact_far = (gradient(groups, positive, negative, one, policy) for one in (near, far))
    penalized = np.mean([score.penalized for score in scores])
    table = []
    for kind, rewards in (("net_advantage", net), ("expected", expected)):
        for estimator, no_std_norm in ESTIMATORS:
            made = host_advantages(rewards, estimator, no_std_norm)
            error = np.linalg.norm(made - net) / np.linalg.norm(net)
            signs = np.mean((np.sign(made) != np.sign(net))[np.abs(net) > 1e-9])
            near_cosine, _ = compare(exact_near, gradient(groups, *split(made), near, policy))
            far_cosine, far_error = compare(exact_far, gradient(groups, *split(made), far, policy))
            label = estimator + (" --no_std_norm" if no_std_norm else "")
            numbers = [f"{value:.3f}" for value in (error, signs, near_cosine, far_cosine, far_error)]
            table.append([f"{name} ({penalized:.0%} penalised)", kind, label, *numbers])
    return table


def main() -> None:
    """Measure and print; without the training stack, say so and stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    if find_spec("openrlhf") is None:
        raise SystemExit("This benchmark uses OpenRLHF's own estimators: install the training stack (make install).")
    detect().install()
    columns = (
        "model",
        "rewards",
        "estimator",
        "advantage error",
        "wrong sign",
        "cosine",
        "cosine, clipped",
        "error, clipped",
    )
    table = Table(*columns, title="RESTRAIN's pair against the host's estimators on the service's rewards")
    method: Any = build(parse_settings({"name": "restrain", "prompt_weight": "online", "kappa": 3}))
    for name, strength in STRENGTHS.items():
        chance = np.random.default_rng(seed)
        groups, policy = sample(chance, strength)
        scores = [method.score(relabel(answers)) for answers in groups]
        ratios = np.exp(chance.normal(scale=0.3, size=(PROMPTS, N)))
        for row in rows(name, scores, groups, ratios, policy):
            table.add_row(*row)
        table.add_section()
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
