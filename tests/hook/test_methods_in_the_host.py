"""What each method trains on: groups worked by hand, from the host's dataloader to the host's Experience.info."""

import math
from dataclasses import dataclass, field

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

from restrain_openrlhf.hook.policy.experience import LAST_STEP
from restrain_openrlhf.method import METHODS
from restrain_openrlhf.scoring.wire import KL_WEIGHT, NEGATIVE, POSITIVE
from tests.hook.in_process import LENGTHS, column, drawn_by_the_host, host_arguments, maker_of
from tests.reference.made import write_reference

PROMPTS = ("1+1=", "2+2=")
# Never the majority, so that a method that may not read them would show it.
GOLD = ("3", "5")
N = 4


def boxed(*answers):
    return [f"\\boxed{{{answer}}}" if answer else "none" for answer in answers]


# r = (1, 1, 0, 0) has mean 1/2 and standard deviation 1/sqrt(3), by n - 1: A = ±sqrt(3)/2. (1, 0, 0, 0): mean 1/4, 1/2.
A = math.sqrt(3) / 2
# RESTRAIN, sigma 1/2: g(f) = exp(-2 (1 - f)²). Shares 2/4 and 1/4 have label weights w and v.
TOTAL = math.exp(-0.5) + math.exp(-1.125)
W, V = math.exp(-0.5) / TOTAL, math.exp(-1.125) / TOTAL
# u_x of 3 of 4 and of 2 of 4 of the frozen model.
U, LOW_U = math.exp(-0.125), math.exp(-0.5)


@dataclass(frozen=True)
class Case:
    """A method, what the engine writes for both prompts, and what must come of it: the first prompt's, the second's."""

    method: dict
    first: list[str]
    second: list[str]
    rewards: list[float]
    positive: list[float]
    negative: list[float]
    kl_weight: list[float] = field(default_factory=lambda: [1.0] * 2 * N)
    # The frozen model's answers to both prompts.
    reference: tuple[list[str], list[str]] | None = None


def one_label(method, first, second, rewards, advantages, reference=None):
    """A single pseudo-label: A⁺ and A⁻ are the positive and the negative advantages."""
    positive = [max(advantage, 0.0) for advantage in advantages]
    negative = [min(advantage, 0.0) for advantage in advantages]
    return Case(method, first, second, rewards, positive, negative, reference=reference)


CASES = {
    # The second group's majority of 1 is below kappa. u_x is that of the frozen model, and weighs KL too.
    "restrain": Case(
        {"name": "restrain", "kappa": 2},
        boxed("2", "2", "3", None),
        boxed("1", "2", "3", "4"),
        rewards=[W, W, V, 0, 0, 0, 0, 0],
        positive=[U * W * A, U * W * A, U * V * 1.5, 0, 0, 0, 0, 0],
        negative=[-U * V / 2, -U * V / 2, -U * W * A, -U * (W * A + V / 2), *[-LOW_U] * N],
        kl_weight=[*[U] * N, *[LOW_U] * N],
        reference=(["2", "2", "2", "9"], ["8", "8", "7", "6"]),
    ),
    # A missing answer has -delta, which u_x does not scale, also in the second group, whose other rollouts it scales.
    "restrain, missing": Case(
        {"name": "restrain", "kappa": 2, "missing": "penalize", "delta": 9},
        boxed("2", "2", "3", None),
        boxed("1", "2", "3", None),
        rewards=[W, W, V, 0, 0, 0, 0, 0],
        positive=[U * W * A, U * W * A, U * V * 1.5, 0, 0, 0, 0, 0],
        negative=[-U * V / 2, -U * V / 2, -U * W * A, -9, *[-9 * LOW_U] * 3, -9],
        kl_weight=[*[U] * N, *[LOW_U] * N],
        reference=(["2", "2", "2", "9"], ["8", "8", "7", "6"]),
    ),
    "ttrl": one_label(
        {"name": "ttrl"},
        boxed("2", "3", "2", None),
        boxed("5", "5", "5", "5"),
        rewards=[1, 0, 1, 0, 1, 1, 1, 1],
        advantages=[A, -A, A, -A, 0, 0, 0, 0],
    ),
    # A prompt's first step; its later ones are in test_past_votes.py.
    "ttrl_guard": one_label(
        {"name": "ttrl_guard"},
        boxed("2", "3", "2", None),
        boxed("5", "5", "5", "5"),
        rewards=[1, 0, 1, 0, 1, 1, 1, 1],
        advantages=[A, -A, A, -A, 0, 0, 0, 0],
    ),
    # Two more vote than are trained on: one of the first group's was cut, and the second's tie goes to the first.
    "ttrl, votes": one_label(
        {"name": "ttrl", "votes": 6, "train_on": N},
        [*boxed("3", "2", "3", "2", "2"), "\\boxed{3}~"],
        boxed("4", "4", "4", "1", "1", "1"),
        rewards=[0, 1, 0, 1, 1, 1, 1, 0],
        advantages=[-A, A, -A, A, 0.5, 0.5, 0.5, -1.5],
    ),
    # The stored label is one rollout's; that of the second prompt is nobody's.
    "srt_offline": one_label(
        {"name": "srt_offline"},
        boxed("2", "2", "3", None),
        boxed("1", "2", "2", "2"),
        rewards=[0, 0, 1, 0, 0, 0, 0, 0],
        advantages=[-0.5, -0.5, 1.5, -0.5, 0, 0, 0, 0],
        reference=(["3", "3", "3", "2"], ["9", "9", "9", "2"]),
    ),
    # The labels are the group's own: the frozen model only chose the prompts.
    "srt_easy": one_label(
        {"name": "srt_easy", "easy_share": 1},
        boxed("2", "2", "3", None),
        boxed("1", "2", "2", "2"),
        rewards=[1, 1, 0, 0, 0, 1, 1, 1],
        advantages=[A, A, -A, -A, -1.5, 0.5, 0.5, 0.5],
        reference=(["3", "3", "3", "2"], ["9", "9", "9", "2"]),
    ),
    # Each tree forks at its digit. H_i is log(2) / tokens: 10, 10, 10 and 20, the end included; the mean is that of
    # 80/7. A (2 - H_i / mean) is 6/7 A and 10/7 A.
    "ettrl": one_label(
        {"name": "ettrl", "trees": 1, "forks": 1, "branches": 3, "entropy_top_k": 2},
        [*boxed("2", "2", "3"), "\\boxed{3}" + "!" * 10],
        [*boxed("4", "1", "4"), "\\boxed{4}" + "!" * 10],
        rewards=[1, 1, 0, 0, 1, 0, 1, 1],
        advantages=[*(factor / 7 for factor in (6 * A, 6 * A, -6 * A, -10 * A, 3, -9, 3, 5))],
    ),
    # A leaf of each tree has no answer and no digit: its H is 0, and the mean is 3/4 of the others' H, whose A becomes
    # A (2 - 4/3). The leaf's own factor of 2 does not change -delta.
    "ettrl, missing": one_label(
        {
            **{"name": "ettrl", "trees": 1, "forks": 1, "branches": 3, "entropy_top_k": 2},
            **{"missing": "penalize", "delta": 9},
        },
        [*boxed("2", "2", "3"), "\\boxed{ }" + "!" * 10],
        [*boxed("4", "1", "4"), "\\boxed{ }" + "!" * 10],
        rewards=[1, 1, 0, 0, 1, 0, 1, 0],
        advantages=[A * 2 / 3, A * 2 / 3, -A * 2 / 3, -9, A * 2 / 3, -A * 2 / 3, A * 2 / 3, -9],
    ),
    # Shares 2/4, 1/4, 2/4 and 0: 16 times their distance from the mean is 3, -1, 3 and -5, and the std √(44 / 3) / 16.
    "frequency": one_label(
        {"name": "frequency"},
        boxed("2", "3", "2", None),
        boxed("5", "5", "5", "5"),
        rewards=[0.5, 0.25, 0.5, 0, 1, 1, 1, 1],
        advantages=[*(each / math.sqrt(44 / 3) for each in (3, -1, 3, -5)), 0, 0, 0, 0],
    ),
    # Contexts of two: a 2 wins beside a 2 and the missing, and ties with the 3: P = 5/6. The 3 ties twice: P = 2/3.
    # Of 108 equally likely outcomes 12, 45 and 50 have one, two and three ones, which weigh -1/2, -A and -3/2 of a 0.
    "gmae0": one_label(
        {"name": "gmae0"},
        boxed("2", "2", "3", None),
        boxed("5", "5", "5", "5"),
        rewards=[5 / 6, 5 / 6, 2 / 3, 0, 1, 1, 1, 1],
        advantages=[*[(58 + 50 * A) / 216] * 2, (23 - 5 * A) / 108, -(81 + 45 * A) / 108, 0, 0, 0, 0],
    ),
    # The majority's share is 1/2, the rare 3 has 1/4 - 1/2, and no answer -1. From the mean they are 9, 9, -3 and -15
    # sixteenths, and the std is √132 of them.
    # In the second group no answer is common enough, and all are negative alike.
    "scrl": one_label(
        {"name": "scrl", "negative_share": 0.5},
        boxed("2", "2", "3", None),
        boxed("1", "2", "3", "4"),
        rewards=[0.5, 0.5, -0.25, -1, *[-0.25] * 4],
        advantages=[*(each / math.sqrt(132) for each in (9, 9, -3, -15)), 0, 0, 0, 0],
    ),
    # H_i is log(2) / tokens, of 10, 10, 10 and 20 tokens: the last response is the surest of both groups.
    "rent": one_label(
        {"name": "rent", "rollouts": N, "entropy_top_k": 2},
        [*boxed("2", "2", "3"), "\\boxed{3}" + "!" * 10],
        [*boxed("4", "1", "4"), "\\boxed{4}" + "!" * 10],
        rewards=[-math.log(2) / tokens for tokens in (10, 10, 10, 20) * 2],
        advantages=[-0.5, -0.5, -0.5, 1.5] * 2,
    ),
    "grpo_gold": one_label(
        {"name": "grpo_gold"},
        boxed("2", "2", "3", None),
        boxed("5", "1", "5", "1"),
        rewards=[0, 0, 1, 0, 1, 0, 1, 0],
        advantages=[-0.5, -0.5, 1.5, -0.5, A, -A, A, -A],
    ),
}


def experiences_of(case, hooked, tmp_path):
    answers = dict(zip(PROMPTS, case.reference, strict=True)) if case.reference else None
    hooked(case.method, reference=write_reference(tmp_path / "ref.jsonl", answers, **LENGTHS) if answers else None)
    arguments = host_arguments(len(PROMPTS), N)
    maker = maker_of(arguments)
    script = {PROMPTS[0]: case.first, PROMPTS[1]: case.second}
    return maker, maker.make_experience_batch(drawn_by_the_host(script, GOLD, arguments))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_hosts_experience_has_the_methods_advantages(case, hooked, tmp_path):
    _, experiences = experiences_of(case, hooked, tmp_path)
    assert column(experiences, "reward") == pytest.approx(case.rewards)
    assert column(experiences, POSITIVE) == pytest.approx(case.positive, rel=1e-4)
    assert column(experiences, NEGATIVE) == pytest.approx(case.negative, rel=1e-4)
    assert column(experiences, KL_WEIGHT) == pytest.approx(case.kl_weight)
    assert all(experience.advantages is None for experience in experiences)


def test_every_method_has_a_group_worked_by_hand():
    without = set(METHODS) - {case.method["name"] for case in CASES.values()}
    assert not without, "add a case for each of these methods to CASES"


def test_the_votes_of_a_step_are_counted_over_all_that_voted(hooked, tmp_path):
    maker, experiences = experiences_of(CASES["ttrl, votes"], hooked, tmp_path)
    votes = LAST_STEP[maker].votes
    assert len(column(experiences, "reward")) == 2 * N
    assert (votes.prompts, votes.voters) == (2, 12)
    assert votes.missing_share_of_voters == votes.truncated_share_of_voters == 1 / 12
    assert votes.majority_share_mean == (3 / 6 + 3 / 6) / 2
    assert votes.majority_histogram == (0, 0, 0, 2, 0, 0, 0)
    # Eleven of nine letters and the end of text, and one that was cut off.
    assert votes.generated_tokens == 11 * 10 + 9


def test_the_leaves_of_trees_carry_their_entropy_and_log_probabilities(hooked, tmp_path):
    maker, experiences = experiences_of(CASES["ettrl"], hooked, tmp_path)
    entropy = [math.log(2) / tokens for tokens in (10, 10, 10, 20)]
    assert column(experiences, "restrain/entropy") == pytest.approx(entropy * 2)
    assert LAST_STEP[maker].gap.logprob_gap == 0
    # The three branches go on after the seven tokens before the digit.
    assert LAST_STEP[maker].votes.generated_tokens == 2 * (10 + 3 + 3 + 13)
