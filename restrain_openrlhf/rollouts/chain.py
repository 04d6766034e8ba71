"""One sampled response token by token, and what a plan for drawing several of them looks like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Alternative(NamedTuple):
    """A token the policy could have sampled, and its log-probability there in nats."""

    token: int
    log_prob: float


@dataclass(frozen=True)
class Chain:
    """T response tokens, with the policy's log-probability of each in nats.

    `entropies` are the policy's at each token, in nats; `alternatives` its most likely tokens there, most likely
    first; both are empty where they were not asked for.
    """

    tokens: tuple[int, ...]
    finish_reason: str | None
    log_probs: tuple[float, ...]
    entropies: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()

    @property
    def mean_entropy(self) -> float:
        """H_i: the mean over the response's tokens, in nats; 0 for an empty response."""
        return sum(self.entropies) / len(self.entropies) if self.entropies else 0.0

    @property
    def is_truncated(self) -> bool:
        """Whether it stopped at its length limit."""
        return self.finish_reason == "length"

    def upto(self, length: int) -> "Chain":
        """Its first `length` tokens, unfinished."""
        return Chain(
            self.tokens[:length], None, self.log_probs[:length], self.entropies[:length], self.alternatives[:length]
        )

    def then(self, rest: "Chain") -> "Chain":
        """This chain continued by another."""
        return Chain(
            self.tokens + rest.tokens,
            rest.finish_reason,
            self.log_probs + rest.log_probs,
            self.entropies + rest.entropies,
            self.alternatives + rest.alternatives,
        )


class Continue(Protocol):
    """Samples a continuation of the prompt and these response tokens, to its end.

    `place` is the rollout's place among all that the plan draws for the prompt.
    """

    async def __call__(self, response: Sequence[int], place: int) -> Chain: ...


class RolloutPlan(Protocol):
    """How the rollouts of one prompt are drawn; the first `trained` of `voters` are trained on.

    `top_k` is how many of the most likely tokens it wants to know at each position; None: no probabilities.
    """

    @property
    def voters(self) -> int: ...

    @property
    def trained(self) -> int: ...

    @property
    def top_k(self) -> int | None: ...

    async def draw(self, continue_from: Continue) -> list[Chain]: ...
