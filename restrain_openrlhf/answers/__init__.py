"""Reads answers from responses and sorts them into classes of equal answers, by the kind of answer."""

from restrain_openrlhf.answers import kinds  # noqa: F401  (each file in it registers its kind)
from restrain_openrlhf.answers.extract import extract
from restrain_openrlhf.answers.keys import canonical_key, classes
from restrain_openrlhf.answers.kind import KINDS, AnswerKind, AnyKind, Row, parse_kind, register
from restrain_openrlhf.answers.kinds.mathematics import MATHEMATICS
from restrain_openrlhf.answers.votes import GroupAnswers

__all__ = [
    "KINDS",
    "MATHEMATICS",
    "AnswerKind",
    "AnyKind",
    "GroupAnswers",
    "Row",
    "canonical_key",
    "classes",
    "extract",
    "parse_kind",
    "register",
]
