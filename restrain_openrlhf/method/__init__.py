"""The maths of RESTRAIN and of the methods it is compared with: votes in, one advantage pair per rollout out."""

from restrain_openrlhf.method import methods  # noqa: F401  (each file in it registers its methods)
from restrain_openrlhf.method.method import Method, build
from restrain_openrlhf.method.settings import METHODS, MethodSettings, parse_settings, register, setting_names
from restrain_openrlhf.method.types import AdvantagePair, GroupScore, History, PromptFacts, ReferenceVote, Votes

__all__ = [
    "METHODS",
    "AdvantagePair",
    "GroupScore",
    "History",
    "Method",
    "MethodSettings",
    "PromptFacts",
    "ReferenceVote",
    "Votes",
    "build",
    "parse_settings",
    "register",
    "setting_names",
]
