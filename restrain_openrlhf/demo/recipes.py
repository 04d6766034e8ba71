"""How each base model of the demo and the study was taught: the stages by the model's name."""

from collections.abc import Mapping
from functools import partial

from restrain_openrlhf.demo import addition, premise
from restrain_openrlhf.demo.teaching import Stage

_PREMISE = partial(Stage, last=0.02, betas=(0.9, 0.95))
_ADDITION = partial(Stage, steps=1500, learning_rate=2e-3, warm_up=50, last=0.05)

RECIPES: Mapping[str, tuple[Stage, ...]] = {
    # The second stage weakens the shortcut: the first alone gives up in about .18 (docs/results/demo_task.md).
    "premise": (
        _PREMISE(partial(premise.example, strength=0.42), steps=800, learning_rate=2e-3, warm_up=50),
        _PREMISE(partial(premise.example, strength=0.38), steps=150, learning_rate=5e-4, warm_up=10),
    ),
    "addition": (_ADDITION(addition.example),),
    "careless": (_ADDITION(addition.careless_example),),
}
