"""The maths of RESTRAIN and of the methods it is compared with: votes in, one advantage pair per rollout out."""

from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.methods import METHODS, build, register
from restrain_openrlhf.method.parsing import MethodSettings, parse_settings
from restrain_openrlhf.method.types import AdvantagePair, GroupScore, PromptFacts, ReferenceVote, Votes

__all__ = [
    "METHODS",
    "AdvantagePair",
    "GroupScore",
    "Method",
    "MethodSettings",
    "PromptFacts",
    "ReferenceVote",
    "Votes",
    "build",
    "parse_settings",
    "register",
]
