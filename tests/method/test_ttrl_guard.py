"""TTRL-Guard: a prompt's whole run against the authors' three parts, written out naively, and groups worked by hand."""

import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from restrain_openrlhf.method import History, PromptFacts
from restrain_openrlhf.method.types import PastVote
from tests.method.test_baselines import GROUPS, grpo, method, numbered

EXACT = {"std": "population", "eps": 0.0}


class Naive:
    """One prompt through a run, with all of the program's state and thresholds; a skip counts by its chance."""

    def __init__(self, lambda1=0.5, lambda2=0.3, beta_max=0.3, min_votes_denom=4, window=5, p_skip=0.7):
        self.lambda1, self.lambda2, self.beta_max, self.skip = lambda1, lambda2, beta_max, p_skip
        self.parts, self.window = min_votes_denom, window
        self.labels, self.shares = [], []
        self.competed = self.protects = False
        self.quiet_steps = self.times_locked = 0

    def step(self, answers):
        """The weight and the advantages of a step's answers."""
        counts, n = Counter(answer for answer in answers if answer is not None), len(answers)
        label = next((each for each in counts if counts[each] == max(counts.values())), "NONE")
        self.labels.append(label)
        self.shares.append(Fraction(counts[label], n))
        flip_rate = 1.0 if len(self.labels) > 1 and self.labels[-2] != label else 0.0
        self.competed |= flip_rate > 0.3
        recent = self.shares[-self.window :]
        mean, long_enough = sum(recent) / len(recent), len(self.shares) >= self.window
        weight = 1 - self.lambda1 * flip_rate
        if self.shares[-1] > Fraction(6, 10) and flip_rate > 0.3:
            weight *= 1 - self.lambda2
        if not self.competed and long_enough and mean > Fraction(6, 10) and self.times_locked < self.window:
            weight, self.times_locked = weight * (1 - self.lambda2 / 2), self.times_locked + 1
        weight = max(weight, 0.1)
        if self.competed and long_enough and mean > Fraction(7, 10):
            weight *= 1 - self.skip
        advantages = [weight * a for a in grpo([float(answer == label) for answer in answers])]
        return weight, self.protected(answers, advantages, counts, label, flip_rate)

    def protected(self, answers, advantages, counts, label, flip_rate):
        """With the bonus of minorities, which the program adds once the advantages are weighted."""
        self.quiet_steps = 0 if flip_rate > 0.3 else self.quiet_steps + 1
        self.protects = flip_rate > 0.3 or (self.protects and self.quiet_steps < 3)
        if not self.protects:
            return advantages
        least = max(1, len(answers) // self.parts)
        minority = {answer: count for answer, count in counts.items() if count >= least and answer != label}
        beta = self.beta_max * min(flip_rate / 0.3, 1)
        scale = sum(map(abs, advantages)) / len(advantages)
        bonus = {answer: beta * count / sum(minority.values()) * scale for answer, count in minority.items()}
        return [a + bonus.get(answer, 0) for a, answer in zip(advantages, answers, strict=True)]


def runs(seed):
    """A prompt's answers step by step: a favourite that seldom changes, and sometimes no answers at all."""
    dice = random.Random(seed)
    n, favourite = dice.choice((2, 4, 8, 16)), "a"
    sure, moves = dice.choice((0.4, 0.7, 0.95)), dice.choice((0.0, 0.1, 0.5))
    for _ in range(dice.randint(1, 14)):
        favourite = dice.choice("abc") if dice.random() < moves else favourite
        drawn = [favourite if dice.random() < sure else dice.choice(["a", "b", "c", "d", None]) for _ in range(n)]
        yield [None] * n if dice.random() < 0.03 else drawn


def test_400_runs_of_a_prompt_are_those_of_the_naive_program():
    seen = Counter()
    for seed in range(400):
        dice = random.Random(-seed - 1)
        names = {"lambda1": 0.5, "lambda2": 0.3, "beta_max": 0.3, "min_votes_denom": 4, "window": 5, "p_skip": 0.7}
        others = {"lambda1": 0, "lambda2": 1, "beta_max": 0, "min_votes_denom": 8, "window": 2, "p_skip": 0}
        settings = names if seed < 200 else {name: dice.choice((names[name], others[name])) for name in names}
        naive, guard, past = Naive(**settings), method(name="ttrl_guard", **settings), []
        for answers in runs(seed):
            classes = numbered(answers)
            of = dict(zip(answers, classes, strict=True))
            history = History(tuple(past), of.get(naive.labels[-1]) if naive.labels else None)
            found, (weight, advantages) = guard.score(classes, PromptFacts(history=history)), naive.step(answers)
            assert found.pair.net == pytest.approx(advantages, abs=1e-12), (seed, len(past))
            assert (found.prompt_weight, found.kl_weight) == (pytest.approx(weight), 1)
            seen[round(weight, 4)] += 1
            flipped = naive.labels[-1:] != naive.labels[-2:-1] and len(naive.labels) > 1
            past.append(PastVote(float(naive.shares[-1]), flipped))
    # .85 of locked prompts, .3 at high risk, .105 with a contradictory flip besides; .1 is the least.
    assert all(seen[weight] > 5 for weight in (1, 0.85, 0.5, 0.35, 0.3, 0.15, 0.105, 0.1)), seen


def guard(classes, *votes, last=0, **settings):
    past = tuple(PastVote(share, flipped) for share, flipped in votes)
    return method(name="ttrl_guard", **EXACT, **settings).score(classes, PromptFacts(history=History(past, last)))


def test_a_flip_worked_by_hand():
    """5 of 8 lead, and 2 gave the last majority. A is √(3/5) and −√(5/3), mean|A| √15 / 4, and w = .5 · .7."""
    found = guard([0] * 5 + [1, 1, 2], (0.5, False), last=1)
    assert found.prompt_weight == pytest.approx(0.35)
    high, low, bonus = math.sqrt(3 / 5), -math.sqrt(5 / 3), 0.3 * math.sqrt(15) / 4
    assert found.pair.net == pytest.approx([0.35 * a for a in [high] * 5 + [low + bonus] * 2 + [low]])
    # 8 // 8 is one vote: the bonus is shared, 2 to 1. A minority's advantage may become positive.
    shared = guard([0] * 5 + [1, 1, 2], (0.5, False), last=1, min_votes_denom=8, beta_max=3)
    assert shared.pair.net[5:] == pytest.approx([0.35 * (low + 10 * bonus * part) for part in (2 / 3, 2 / 3, 1 / 3)])
    assert shared.pair.negative.tolist()[5:7] == [0, 0]


def test_weights_worked_by_hand():
    weights = [guard([0] * 4, *[(0.75, False)] * before).prompt_weight for before in range(12)]
    # Locked from its fifth step on, and five times.
    assert weights == pytest.approx([1] * 4 + [0.85] * 5 + [1] * 3)
    settled = ((0.5, False), (0.5, True), (0.75, False), (0.75, False))
    assert guard([0] * 4, *settled).prompt_weight == 1, "the mean is .7, which is not above it"
    assert guard([0] * 4, *settled, (1.0, False)).prompt_weight == pytest.approx(0.3)
    assert guard([0] * 4, *settled[1:]).prompt_weight == 1, "four steps"
    off = {"lambda1": 0, "lambda2": 0, "p_skip": 0, "beta_max": 0}
    assert guard([0, 0, 1, None], *settled, (1.0, False), last=1, **off).prompt_weight == 1


@given(GROUPS)
def test_a_first_step_is_that_of_ttrl_and_so_is_every_group_outside_of_a_run(labels):
    found, ttrl = (method(name=name).score(labels) for name in ("ttrl_guard", "ttrl"))
    for one, other in ((found.pair.positive, ttrl.pair.positive), (found.pair.negative, ttrl.pair.negative)):
        assert one.tolist() == other.tolist()


@given(GROUPS, st.integers(0, 3))
def test_renaming_answers_does_not_matter(labels, last):
    counts = sorted(Counter(label for label in labels if label is not None).values())
    assume(counts[-2:-1] != counts[-1:])
    last, names = (
        last if last in labels else None,
        {label: len(counts) - 1 - label for label in labels if label is not None},
    )
    names[None] = None
    moved = guard([names[label] for label in labels], (0.5, True), last=names[last])
    assert moved.pair.net == pytest.approx(guard(labels, (0.5, True), last=last).pair.net)


def test_all_vote_and_the_first_are_trained_on():
    """Of 8 votes 5 are for 0, of which one is trained on: (1, 0, 0, 0) gives √3 and −1/√3, whose size is √3 / 2."""
    found = guard([0, 1, 1, 2, 0, 0, 0, 0], (0.5, False), last=1, votes=8, train_on=4)
    expected = [math.sqrt(3), *[-1 / math.sqrt(3) + 0.3 * math.sqrt(3) / 2] * 2, -1 / math.sqrt(3)]
    assert found.pair.net == pytest.approx([0.35 * each for each in expected])
