"""What the calculator's base model was taught: the premise task as a query and an answer, each with slips."""

import random
from collections.abc import Sequence

from examples.calculator_agent import calculated, observed
from restrain_openrlhf.data.demo_tasks import premise
from tools.examples import product_example
from tools.tokenizer import BOX, SPECIAL

# Chance that a column of the query has a wrong digit, and that a product's last digit is read wrongly.
MISWRITTEN, MISREAD = 0.10, 0.08
END = SPECIAL[1]
TEN = 10


def calculator_example(rng: random.Random, single: float = 0.5, longest: int = 6) -> tuple[str, str]:
    """A single turn of the premise task, or one of the two turns: what stands before it, and the turn itself.

    `single` is the share of single turns; problems of two turns have at most `longest` columns.
    """
    if rng.random() < single:
        return product_example(rng, strength=0.38)
    a, b = premise.columns(rng, heldout=False)
    while len(a) > longest:
        a, b = premise.columns(rng, heldout=False)
    asked, query = observed(premise.text(a, b)), written(rng, a, b)
    if rng.random() < 1 / 2:
        return asked, query
    feedback = calculated(query)
    assert feedback is not None, "an example's query can be calculated"
    return f"{asked}{query}{END}{feedback}", f"{BOX}{read(rng, feedback)}}}"


def written(rng: random.Random, a: Sequence[int], b: Sequence[int]) -> str:
    """The query of a problem: `7*6,6*6`, with slips."""
    return ",".join(f"{_slipped(rng, x)}*{y}" for x, y in zip(a, b, strict=True))


def _slipped(rng: random.Random, digit: int) -> int:
    return (digit + rng.randrange(1, TEN)) % TEN if rng.random() < MISWRITTEN else digit


def read(rng: random.Random, feedback: str) -> str:
    """The last digit of each product, with slips."""
    products = feedback.strip("=>").split(",")
    return "".join(str(rng.randrange(TEN)) if rng.random() < MISREAD else product[-1] for product in products)
