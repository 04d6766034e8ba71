"""A method: how rollouts are drawn, how votes are counted, who is believed, and what is done to the advantages."""

from collections.abc import Sequence
from dataclasses import dataclass

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.advantages import Std, advantage_pair, expected_rewards, unbiased_std
from restrain_openrlhf.method.beliefs import Belief
from restrain_openrlhf.method.selection import Selection
from restrain_openrlhf.method.transforms import Transform
from restrain_openrlhf.method.types import GroupScore, PromptFacts
from restrain_openrlhf.method.votes import CountVotes, exclude_missing
from restrain_openrlhf.rollouts import RolloutPlan

NO_FACTS = PromptFacts()


@dataclass(frozen=True)
class Method:
    """A composition; `transforms` are applied in order.

    `rollouts` is None for plain independent sampling, as many as are asked for; `selection` None for every prompt.
    """

    name: str
    belief: Belief
    transforms: tuple[Transform, ...] = ()
    count_votes: CountVotes = exclude_missing
    std: Std = unbiased_std
    eps: float = 1e-6
    rollouts: RolloutPlan | None = None
    selection: Selection | None = None

    @property
    def reads_gold(self) -> bool:
        """Whether gold reaches this method at all."""
        return self.belief.reads_gold

    @property
    def needs_reference(self) -> bool:
        """Whether any part reads the offline pass of the frozen model."""
        of_transforms = any(part.needs_reference for part in self.transforms)
        return self.belief.needs_reference or of_transforms or self.selection is not None

    def score(self, classes: Sequence[int | None], facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per voting rollout, None for a missing answer.

        Raises GroupError where the group has another size than the method draws.
        """
        votes = self.count_votes(classes)
        weights = self.belief(votes, facts)
        trained = votes.first(self._trained(votes.n))
        score = GroupScore(
            votes=votes,
            label_weights=weights,
            pair=advantage_pair(trained, weights, self.std, self.eps),
            rewards=expected_rewards(trained, weights),
        )
        for transform in self.transforms:
            score = transform(score, facts)
        return score

    def _trained(self, found: int) -> int:
        if self.rollouts is None:
            return found
        if found != self.rollouts.voters:
            raise GroupError(
                f"The group has {found} rollouts, and the method {self.name!r} votes on {self.rollouts.voters}. "
                "Give groups of that size, or change the method's settings."
            )
        return self.rollouts.trained
