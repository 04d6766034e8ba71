"""Whether label-free training can work on these prompts with this base model, told from the frozen model's rollouts."""

from restrain_openrlhf.premise.diagnosis import Premise, diagnose
from restrain_openrlhf.premise.groups import FrozenPass, from_reference, from_rollouts

__all__ = ["FrozenPass", "Premise", "diagnose", "from_reference", "from_rollouts"]
