"""The policy's uncertainty at a token, from the log-probabilities of its most likely tokens."""

import math
from collections.abc import Sequence


def token_entropy(log_probs: Sequence[float]) -> float:
    """H = −sum p log p in nats, from the k most likely tokens (log-probabilities, nats).

    The tokens that are not given count as one token with the probability that is left, so that H is never above the
    exact value and is the exact one where k covers the vocabulary.
    """
    probabilities = [math.exp(value) for value in log_probs]
    rest = max(0.0, 1.0 - sum(probabilities))
    return sum(-p * math.log(p) for p in (*probabilities, rest) if p > 0)
