"""A method as a composition: how rollouts are drawn and votes counted, what each label weighs, what follows."""

from dataclasses import dataclass, fields

from restrain_openrlhf.errors import GroupError
from restrain_openrlhf.method.advantages import Std, advantage_pair, expected_rewards, unbiased_std
from restrain_openrlhf.method.label_weightings import LabelWeighting
from restrain_openrlhf.method.selection import Selection
from restrain_openrlhf.method.transforms import Transform
from restrain_openrlhf.method.types import Classes, CountVotes, Fact, GroupScore, Part, PromptFacts, count_votes
from restrain_openrlhf.rollouts import RolloutPlan

NO_FACTS = PromptFacts()


@dataclass(frozen=True)
class Method:
    """A composition; `transforms` are applied in order.

    `rollouts` is None for plain independent sampling, as many as are asked for; `selection` None for every prompt.
    """

    name: str
    label_weighting: LabelWeighting
    transforms: tuple[Transform, ...] = ()
    count_votes: CountVotes = count_votes
    std: Std = unbiased_std
    eps: float = 1e-6
    rollouts: RolloutPlan | None = None
    selection: Selection | None = None

    @property
    def reads_gold(self) -> bool:
        """Whether any part reads the gold answer."""
        return any(Fact.GOLD in part.reads for part in self._parts())

    @property
    def needs_reference(self) -> bool:
        """Whether any part reads the offline pass of the frozen model."""
        return any(Fact.REFERENCE in part.reads for part in self._parts())

    def score(self, classes: Classes, facts: PromptFacts = NO_FACTS) -> GroupScore:
        """The score of one group; `classes` has one label per voting rollout, None for a missing answer.

        Raises GroupError where the group has another size than the method draws.
        """
        votes = self.count_votes(classes)
        weights = self.label_weighting(votes, facts.only(self.label_weighting.reads))
        trained = votes.first(self._trained(votes.n))
        score = GroupScore(
            votes=votes,
            label_weights=weights,
            pair=advantage_pair(trained, weights, self.std, self.eps),
            rewards=expected_rewards(trained, weights),
        )
        for transform in self.transforms:
            score = transform(score, facts.only(transform.reads))
        return score

    def _parts(self) -> list[Part]:
        """The parts in all fields, whatever fields there are."""
        values = [getattr(self, field.name) for field in fields(self)]
        flat = [part for value in values for part in (value if isinstance(value, tuple) else [value])]
        return [part for part in flat if isinstance(part, Part)]

    def _trained(self, found: int) -> int:
        if self.rollouts is None:
            return found
        if found != self.rollouts.voters:
            raise GroupError(
                f"The group has {found} rollouts, and the method {self.name!r} votes on {self.rollouts.voters}. "
                "Give groups of that size, or change the method's settings."
            )
        return self.rollouts.trained
