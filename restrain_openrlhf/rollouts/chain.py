"""One sampled response token by token, with log-probabilities and entropies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


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


def token_entropy(log_probs: Sequence[float]) -> float:
    """H = −sum p log p in nats, from the k most likely tokens (log-probabilities, nats).

    The tokens that are not given count as one token with the probability that is left, so that H is never above the
    exact value and is the exact one where k covers the vocabulary.
    """
    probabilities = [math.exp(value) for value in log_probs]
    rest = max(0.0, 1.0 - sum(probabilities))
    return sum(-p * math.log(p) for p in (*probabilities, rest) if p > 0)
