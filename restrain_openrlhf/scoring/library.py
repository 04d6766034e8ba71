"""The votes as a library: `score(responses)` for a notebook or any trainer, with rows for pandas."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from restrain_openrlhf.answers import AnswerKind, parse_kind
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.answers.shown import Responses
from restrain_openrlhf.answers.votes import MissingSoFar
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.method import GroupScore, Method, build, parse_settings
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.scoring.scorer import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import GroupRequest, GroupResponse

# u_x is 1 by default, because a notebook seldom has the frozen model's votes, which u_x is computed from.
UNWEIGHTED: Mapping[str, Any] = MappingProxyType({"name": "restrain", "prompt_weight": "none"})


class ScoredGroups(tuple[GroupScore, ...]):
    """The scores of one or more groups, in order."""

    __slots__ = ()

    def to_records(self) -> list[dict[str, Any]]:
        """One row of plain values for each rollout: `pandas.DataFrame(score(responses).to_records())`.

        `advantage` is A⁺ + A⁻. A rollout that votes but is not trained on has None for its reward and advantages.
        """
        return [row for number, group in enumerate(self) for row in _rows(number, group)]


def _rows(number: int, group: GroupScore) -> Iterator[dict[str, Any]]:
    trained = zip(group.rewards.tolist(), group.pair.positive.tolist(), group.pair.negative.tolist(), strict=True)
    for place, (answer, label) in enumerate(zip(group.answers, group.votes.classes, strict=True)):
        reward, positive, negative = next(trained, (None, None, None))
        yield {
            "group": number,
            "rollout": place,
            "answer": answer,
            "class": label,
            "votes": 0 if label is None else group.votes.counts[label],
            "is_majority": label is not None and label == group.votes.majority,
            "label_weight": 0.0 if label is None else float(group.label_weights[label]),
            "reward": reward,
            "advantage": None if positive is None else positive + negative,
            "advantage_pos": positive,
            "advantage_neg": negative,
            "prompt_weight": group.prompt_weight,
            "penalized": group.penalized,
        }


def score(
    responses: Iterable[str] | Iterable[Iterable[str]],
    prompts: str | Iterable[str] | None = None,
    *,
    method: str | Mapping[str, Any] = UNWEIGHTED,
    answers: str | Mapping[str, Any] | AnswerKind = "math",
    reference: str | Path | Reference | None = None,
    truncated: Iterable[bool] | Iterable[Iterable[bool]] | None = None,
    gold: str | Iterable[str] | None = None,
    columns: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
) -> ScoredGroups:
    """Score the n responses to one prompt, or a list of such groups: answers, votes, label weights, advantages.

    `method` and `answers` are a name or a block of settings, as in a configuration file. `reference` is the result of
    an offline pass; its rows are found by `prompts`, which must be the texts that the policy sees. A response marked in
    `truncated` has no answer. `columns` holds what the kind of answer reads from a prompt's row, such as options.

    `truncated` has the shape of `responses`; `prompts`, `gold` and `columns` have one entry for each group. Any list
    may be an array, a tensor or a column of a table.

    Warns (UserWarning) where more than 20 % of the responses have no answer, and quotes the ends of some.

    Raises ConfigError for a wrong method or kind, DataError for wrong shapes or types, and what GroupScorer raises.
    """
    texts = _groups("responses", responses, str, "texts")
    whole = [[False] * len(group) for group in texts]
    cut = whole if truncated is None else _groups("truncated", truncated, bool, "true or false values")
    if [len(group) for group in cut] != [len(group) for group in texts]:
        raise DataError("truncated and responses have different shapes. Give true or false for each response.")
    scorer, count = scorer_of(method, answers, reference), len(texts)
    asked, golds = _each("prompts", prompts, str, count), _each("gold", gold, str, count)
    rows = _each("columns", columns, Mapping, count)
    each = zip(asked, texts, cut, golds, rows, strict=True)
    scored = ScoredGroups(score_whole_group(scorer, group_of(scorer, *group)) for group in each)
    missing = MissingSoFar()
    for group, is_cut, prompt, row, result in zip(texts, cut, asked, rows, scored, strict=True):
        read = Responses.of(group, is_cut, {PROBLEM: prompt or "", **(row or {})})
        missing.add(read, result.votes.classes)
    if many := missing.warning("the responses", scorer.kind):
        warnings.warn(many, stacklevel=2)
    return scored


def scorer_of(
    method: str | Mapping[str, Any],
    answers: str | Mapping[str, Any] | AnswerKind = "math",
    reference: str | Path | Reference | None = None,
) -> GroupScorer:
    """The scorer of these settings. Raises ConfigError for a wrong one, ReferencePassError for a missing reference."""
    kind = answers if isinstance(answers, AnswerKind) else parse_kind(_block(answers))
    found = load_reference(Path(reference)) if isinstance(reference, str | Path) else reference
    return GroupScorer(build(parse_settings(_block(method))), found, kind)


def refuse_unserved(method: Method, n: int, trainer: str) -> None:
    """Raises ConfigError for a method that cannot learn from n rollouts of each prompt, all that a `trainer` brings."""
    needs = "gold answers" if method.reads_gold else "prompts that it chooses" if method.selection else None
    needs = "entropies of tokens" if "entropies" in method.reads else needs
    needs = "a prompt's votes in earlier steps" if method.reads_history else needs
    if needs or (method.rollouts and (method.rollouts.voters, method.rollouts.trained) != (n, n)):
        raise ConfigError(
            f"The method {method.name!r} needs {needs or 'rollouts that it draws itself'}, which {trainer} does not "
            "provide. Train with `restrain train`, or the agent (docs/journeys/integration.md), or another method."
        )
    if useless := method.why_useless(n):
        raise ConfigError(useless)


def group_of(
    scorer: GroupScorer,
    prompt: str | None,
    texts: Sequence[str],
    truncated: Sequence[bool],
    gold: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> GroupRequest:
    """One prompt's rollouts in the form that the scorer reads."""
    rollouts = tuple(GroupResponse(text=text, finished=not cut) for text, cut in zip(texts, truncated, strict=True))
    own = scorer.kind.graded_row if scorer.method.reads_gold else scorer.kind.row
    row = None if columns is None else dict(own(prompt or "", columns))
    return GroupRequest(prompt=prompt or "", responses=rollouts, gold=gold, row=row)


def _block(word: Any) -> Any:
    return {"name": word} if isinstance(word, str) else word


def _groups(name: str, given: Any, kind: type, called: str) -> list[list[Any]]:
    """The groups, of which a single one needs no list around it. Raises DataError for another form, or an empty one."""
    outer = _listed(given)
    groups: list[list[Any] | None] = (
        [outer] if outer and isinstance(outer[0], kind) else [_listed(group) for group in outer or ()]
    )
    found = [group for group in groups if group and all(isinstance(value, kind) for value in group)]
    if not found or len(found) != len(groups):
        raise DataError(
            f"{name} is {given!r:.200}, of type {type(given).__name__}. Give the {called} of one prompt as a list, or "
            "a list of such lists, none of them empty."
        )
    return found


def _each(name: str, given: Any, kind: type, count: int) -> list[Any]:
    """One value for each group. Raises DataError for another number of values, and for values of another type."""
    found: list[Any] | None = (
        [given] if isinstance(given, kind) else [None] * count if given is None else _listed(given)
    )
    if found is None or len(found) != count or not all(value is None or isinstance(value, kind) for value in found):
        raise DataError(f"{name} is {given!r:.60}. Give {count}, one for each group, of type {kind.__name__}.")
    return found


def _listed(given: Any) -> list[Any] | None:
    """The values of a list, an array, a tensor or a column of a table as Python's own; None for anything else."""
    plain = _plain(given)
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        return None
    return [_plain(value) for value in plain]


def _plain(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given
