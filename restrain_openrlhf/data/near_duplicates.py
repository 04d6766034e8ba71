"""Groups of prompts that differ in case, punctuation and white space alone: counted always, dropped where asked for."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.normal_form import letters_and_digits, normal_form

Group = tuple[int, ...]


class NearDuplicates(BaseModel):
    """What is said of a set's near-duplicates. `conflicting` counts groups with different answers, None without any.

    The `loose_` counts are of prompts with equal letters and digits, whatever their signs and operators: more than
    near-duplicates. `dropped` counts prompts.
    """

    model_config = ConfigDict(frozen=True)

    groups: int
    prompts: int
    conflicting: int | None
    loose_groups: int
    loose_conflicting: int | None
    dropped: int


@dataclass(frozen=True)
class Grouped:
    """Near-duplicates by their places in the set; groups in the order of their first prompts."""

    groups: tuple[Group, ...]
    conflicting: frozenset[Group]

    def dropped(self) -> frozenset[int]:
        """Places that go: all but the first of a group, and all of a group with different answers."""
        return frozenset(place for group in self.groups for place in self._dropped_of(group))

    def _dropped_of(self, group: Group) -> Group:
        return group if group in self.conflicting else group[1:]


def near_duplicates(problems: Sequence[str], answers: Sequence[str | None]) -> Grouped:
    """Groups of two or more problems with one normal form; time is linear in the length of the texts.

    A group conflicts where two of its answers differ as text, white space around them aside. `answers` has one for
    each problem, None where there is none; a missing answer conflicts with nothing.
    """
    return _grouped(problems, answers, normal_form)


def counted(problems: Sequence[str], answers: Sequence[str | None], found: Grouped, drop: bool) -> NearDuplicates:
    """The numbers of `found`, with those of prompts that have equal letters and digits beside them."""
    loose = _grouped(problems, answers, letters_and_digits)
    answered = any(answer is not None for answer in answers)
    return NearDuplicates(
        groups=len(found.groups),
        prompts=sum(map(len, found.groups)),
        conflicting=len(found.conflicting) if answered else None,
        loose_groups=len(loose.groups),
        loose_conflicting=len(loose.conflicting) if answered else None,
        dropped=len(found.dropped()) if drop else 0,
    )


def _grouped(problems: Sequence[str], answers: Sequence[str | None], form: Callable[[str], str]) -> Grouped:
    places: dict[str, list[int]] = defaultdict(list)
    for place, problem in enumerate(problems):
        # A problem of nothing but signs or punctuation is like itself alone.
        places[form(problem) or problem].append(place)
    groups = tuple(tuple(found) for found in places.values() if len(found) > 1)
    return Grouped(groups, frozenset(group for group in groups if len(set(_given(answers, group))) > 1))


def _given(answers: Sequence[str | None], group: Group) -> Iterator[str]:
    return (answer.strip() for place in group if (answer := answers[place]) is not None)
