"""A method as trainers and commands use it: its one function from votes to a score, and what surrounds each."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method.rollout_plans import RolloutPlan
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import (
    AdvantagePair,
    Classes,
    Facts,
    GroupScore,
    PromptFacts,
    ReferenceVote,
    Score,
    Selection,
    count_votes,
)

NO_FACTS = PromptFacts()


@dataclass(frozen=True)
class Method:
    """The function receives the facts that `reads` names, and no others.

    `rollouts` is None if the host draws independent rollouts, as many as its flags say. `selection` is None if every
    prompt is trained on. `missing_penalty` is δ, or None where missing answers are not penalised. `on_gold` is the
    function for prompts that have gold, and None where `function` is that for all. `labelled_share` is the share of an
    episode's prompts that shall have gold, None for that of the file.
    """

    name: str
    function: Score
    reads: Facts = frozenset()
    rollouts: RolloutPlan | None = None
    selection: Selection | None = None
    missing_penalty: float | None = None
    on_gold: Score | None = None
    labelled_share: float | None = None

    @property
    def reads_gold(self) -> bool:
        """Whether it reads the gold answer of a prompt that has one."""
        return self.needs_gold or self.on_gold is not None

    @property
    def needs_gold(self) -> bool:
        """Whether every prompt must have a gold answer."""
        return "gold_class" in self.reads

    @property
    def needs_reference(self) -> bool:
        """Whether it selects prompts by the offline pass of the frozen model, or reads it."""
        return self.selection is not None or "reference" in self.reads

    @property
    def reads_history(self) -> bool:
        """Whether it reads the prompt's votes in earlier steps of the run."""
        return "history" in self.reads

    def score(self, classes: Classes, facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per voting rollout, None for a missing answer.

        Raises GroupError if the group has another size than the method draws, ReferencePassError where the prompt
        lacks the frozen model's vote that the method reads.
        """
        votes, plan = count_votes(classes), self.rollouts
        if plan is not None and plan.voters != votes.n:
            raise GroupError(
                f"The group has {votes.n} rollouts, but the method {self.name!r} votes on {plan.voters}. Give groups "
                "of that size, or change the method's settings."
            )
        votes = replace(votes, train_on=None if plan is None else plan.trained)
        if "reference" in self.reads and facts.reference is None:
            raise ReferencePassError(
                f"The method {self.name!r} reads the frozen model's vote, but there is none for this prompt. Make a "
                "reference with `restrain reference`. RESTRAIN needs none with prompt_weight: none, online or a "
                "number."
            )
        if self.on_gold is not None and facts.has_gold:
            score = self.on_gold(votes, facts.only(frozenset({"gold_class"})))
        else:
            score = self.function(votes, facts.only(self.reads))
        return score if self.missing_penalty is None else _with_missing_penalised(score, self.missing_penalty)

    def why_useless(self, n: int) -> str | None:
        """Why the method would learn nothing from groups of n rollouts: it penalises even a unanimous one."""
        facts = PromptFacts(ReferenceVote(n, n), stored_class=0, gold_class=0, entropies=(1.0,) * n)
        is_useless = self.score([0] * (self.rollouts.voters if self.rollouts else n), facts).penalized >= 1
        what = f"The method {self.name!r} penalises even a unanimous group of {n} rollouts: its kappa is above that."
        return f"{what} Lower kappa, or give it as a share below 1." if is_useless else None


def _with_missing_penalised(score: GroupScore, delta: float) -> GroupScore:
    """A rollout without an answer has the pair (0, −δ), which u_x does not scale (docs/concepts/deviations.md)."""
    missing = np.array([label is None for label in score.votes.trained.classes])
    positive = np.where(missing, 0.0, score.pair.positive)
    return replace(score, pair=AdvantagePair(positive, np.where(missing, -delta, score.pair.negative)))


@cache
def build(settings: CommonSettings) -> Method:
    """The method with these settings, built once in a process."""
    return Method(
        name=settings.name,
        function=settings.score,
        reads=settings.reads,
        rollouts=settings.plan,
        selection=settings.selection,
        missing_penalty=settings.delta if settings.missing == "penalize" else None,
        on_gold=settings.gold_score,
        labelled_share=settings.share_of_labelled,
    )
