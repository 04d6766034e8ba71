"""A method as a composition: how rollouts are drawn, what each label weighs, and what follows for the advantages."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from restrain_openrlhf.errors import GroupError, ReferencePassError
from restrain_openrlhf.method.advantages import Std, advantage_pair, expected_rewards, unbiased_std
from restrain_openrlhf.method.rollout_plans import RolloutPlan
from restrain_openrlhf.method.types import Classes, Facts, Floats, GroupScore, PromptFacts, Votes, count_votes

NO_FACTS = PromptFacts()
# Takes the frozen model's majority share of every prompt, and returns the positions of the prompts to train on,
# ascending.
Selection = Callable[[Sequence[float]], list[int]]


class MethodPart:
    """A part of a method. It receives only the facts that it says it reads."""

    @property
    def reads(self) -> Facts:
        """Names of the facts that this part reads; none unless the part says otherwise."""
        return frozenset()


class LabelWeighting(MethodPart, ABC):
    """Turns a group's votes into label weights, shape (m,). They sum to 1, or are all 0 where no label is believed."""

    @abstractmethod
    def __call__(self, votes: Votes, facts: PromptFacts) -> Floats: ...


class Transform(MethodPart, ABC):
    """Turns a group's score into another one, after the label weights have given the advantages."""

    @abstractmethod
    def __call__(self, score: GroupScore, facts: PromptFacts) -> GroupScore: ...


@dataclass(frozen=True)
class Method:
    """A label weighting, and the transforms that follow it in order.

    `rollouts` is None if the host draws independent rollouts, as many as its flags say. `selection` is None if
    every prompt is trained on.
    """

    name: str
    label_weighting: LabelWeighting
    transforms: tuple[Transform, ...] = ()
    std: Std = unbiased_std
    eps: float = 1e-6
    rollouts: RolloutPlan | None = None
    selection: Selection | None = None

    @property
    def reads(self) -> Facts:
        """The facts that its parts read."""
        return frozenset().union(*(part.reads for part in (self.label_weighting, *self.transforms)))

    @property
    def reads_gold(self) -> bool:
        """Whether any part reads the gold answer."""
        return "gold_class" in self.reads

    @property
    def needs_reference(self) -> bool:
        """Whether prompts are selected by the offline pass of the frozen model, or any part reads it."""
        return self.selection is not None or "reference" in self.reads

    def score(self, classes: Classes, facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per voting rollout, None for a missing answer.

        Raises GroupError if the group has another size than the method draws, ReferencePassError where the prompt
        lacks the frozen model's vote that a part reads.
        """
        votes = count_votes(classes)
        weights = self.label_weighting(votes, self._facts_for(self.label_weighting, facts))
        trained = votes.first(self._trained(votes.n))
        pair = advantage_pair(trained, weights, self.std, self.eps)
        score = GroupScore(votes, weights, pair, expected_rewards(trained, weights))
        for transform in self.transforms:
            score = transform(score, self._facts_for(transform, facts))
        return score

    def _facts_for(self, part: MethodPart, facts: PromptFacts) -> PromptFacts:
        """The facts that the part reads.

        Raises ReferencePassError if it reads the frozen model's vote and finds none.
        """
        if "reference" in part.reads and facts.reference is None:
            raise ReferencePassError(
                f"The method {self.name!r} reads the frozen model's vote, but there is none for this prompt. Make a "
                "reference with `restrain reference`. RESTRAIN needs none with prompt_weight: none, online or a "
                "number."
            )
        return facts.only(part.reads)

    def _trained(self, found: int) -> int:
        if self.rollouts is None:
            return found
        if found != self.rollouts.voters:
            raise GroupError(
                f"The group has {found} rollouts, but the method {self.name!r} votes on {self.rollouts.voters}. Give "
                "groups of that size, or change the method's settings."
            )
        return self.rollouts.trained
