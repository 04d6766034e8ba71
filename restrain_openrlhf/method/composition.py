"""A method: how votes are counted, who is believed, and what is then done to the advantages."""

from collections.abc import Sequence
from dataclasses import dataclass

from restrain_openrlhf.method.advantages import Std, advantage_pair, expected_rewards, unbiased_std
from restrain_openrlhf.method.beliefs import Belief
from restrain_openrlhf.method.transforms import Transform
from restrain_openrlhf.method.types import GroupScore, PromptFacts
from restrain_openrlhf.method.votes import CountVotes, exclude_missing

NO_FACTS = PromptFacts()


@dataclass(frozen=True)
class Method:
    """A composition; `transforms` are applied in order."""

    name: str
    belief: Belief
    transforms: tuple[Transform, ...] = ()
    count_votes: CountVotes = exclude_missing
    std: Std = unbiased_std
    eps: float = 1e-6

    @property
    def reads_gold(self) -> bool:
        """Whether gold reaches this method at all."""
        return self.belief.reads_gold

    @property
    def needs_reference(self) -> bool:
        """Whether any part reads the offline pass of the frozen model."""
        return self.belief.needs_reference or any(part.needs_reference for part in self.transforms)

    def score(self, classes: Sequence[int | None], facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per rollout, None for a missing answer."""
        votes = self.count_votes(classes)
        weights = self.belief(votes, facts)
        score = GroupScore(
            votes=votes,
            label_weights=weights,
            pair=advantage_pair(votes, weights, self.std, self.eps),
            rewards=expected_rewards(votes, weights),
        )
        for transform in self.transforms:
            score = transform(score, facts)
        return score
