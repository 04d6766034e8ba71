"""Where each method would learn: squared advantage on the frozen model's groups, by the size of the majority."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

import numpy as np

from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass
from restrain_openrlhf.errors import ConfigError, DataError, GroupError
from restrain_openrlhf.evaluation.estimators import Z
from restrain_openrlhf.method import METHODS, Method, build, parse_settings
from restrain_openrlhf.method.settings import CommonSettings
from restrain_openrlhf.method.types import Floats
from restrain_openrlhf.scoring import score_group


@dataclass(frozen=True)
class Ratio:
    """A share of a total over prompts, with its 95 % interval (to first order, prompts being the sample)."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Learning:
    """One method on the groups of a first training step. Advantages are A⁺ + A⁻ with u_x; shares are in [0, 1].

    `by_size[b]` is the share of squared advantage on the prompts of bin b, and `penalized` the share on penalised
    groups. `on_wrong` is the share on prompts whose majority is wrong, among the groups that have gold and are not
    penalised. A push is the sum of (A − the group's mean A) over some rollouts, relative to the sum of |A| over all, so
    0.5 at most: `shared_push` over rollouts with the most common answer, `right_push` over right rollouts, in groups
    with gold.
    """

    name: str
    prompts: int
    prompts_penalized: float
    mean_advantage: float
    by_size: tuple[float, ...]
    penalized: float
    shared_push: float | None
    right_push: float | None
    on_wrong: Ratio | None
    reads_gold: bool


@dataclass(frozen=True)
class Bin:
    """Majority sizes from `low` to `high`, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}" if self.low < self.high else str(self.low)


def quarters(n: int) -> tuple[Bin, ...]:
    """Sizes 0 to n in four bins of (nearly) equal width, fewer for n < 4."""
    edges = sorted({-1, *(ceil(n * quarter / 4) for quarter in range(1, 5))})
    return tuple(Bin(low + 1, high) for low, high in pairwise(edges))


def compared(frozen: FrozenPass, settings: CommonSettings, shared: str | None) -> tuple[list[Learning], dict[str, str]]:
    """The chosen method, then all others at their defaults; and, for each method that does not apply, why.

    `shared` is the key of the most common answer. Raises the errors of `learning` if the chosen method does not apply.
    """
    found, left_out = [learning(settings.name, build(settings), frozen, shared)], {}
    for name in METHODS:
        if name != settings.name:
            try:
                found.append(learning(name, build(parse_settings({"name": name})), frozen, shared))
            except (ConfigError, DataError, GroupError) as error:
                left_out[name] = str(error)
    return found, left_out


def learning(name: str, method: Method, frozen: FrozenPass, shared: str | None) -> Learning:
    """One method on the groups that it trains on, which are scored one at a time.

    Raises GroupError if the method draws its groups in another way, and DataError if it trains on none of these
    prompts.
    """
    groups = [_advantage(method, each, frozen, shared) for each in _trained_on(method, frozen)]
    if not groups:
        raise DataError("It trains on none of these prompts: it reads gold, or selects by a share that none reaches.")
    graded = [each for each in groups if each.to_right is not None]
    squares = [
        sum(each.square for each in groups if part.low <= each.majority <= part.high) for part in quarters(frozen.n)
    ]
    penalized = [each.square for each in groups if each.penalized]
    size, total = sum(each.size for each in groups), sum(squares)
    return Learning(
        name=name,
        prompts=len(groups),
        prompts_penalized=len(penalized) / len(groups),
        mean_advantage=size / sum(each.rollouts for each in groups),
        by_size=tuple(_share(square, total) or 0.0 for square in squares),
        penalized=_share(sum(penalized), total) or 0.0,
        shared_push=None if shared is None else _share(sum(each.to_shared for each in groups), size),
        right_push=_share(sum(each.to_right or 0.0 for each in graded), sum(each.size for each in graded)),
        on_wrong=_on_wrong([each for each in graded if not each.penalized]),
        reads_gold=method.reads_gold,
    )


@dataclass(frozen=True, slots=True)
class _GroupAdvantage:
    """The advantage of one group: `square` and `size` are the sums of A² and |A| over its rollouts.

    `to_shared` and `to_right` are the pushes towards the most common and the right answers, not yet relative to |A|.
    `to_right` is None without gold.
    """

    majority: int
    majority_is_right: bool
    rollouts: int
    square: float
    size: float
    to_shared: float
    to_right: float | None
    penalized: bool


def _advantage(method: Method, each: FrozenGroup, frozen: FrozenPass, shared: str | None) -> _GroupAdvantage:
    row, grades = each.row, each.grades
    score = score_group(method, each.group, row, each.gold, str(row.id), None, frozen.kind, row.row)
    net = score.pair.net
    return _GroupAdvantage(
        majority=row.majority_count,
        majority_is_right=each.majority_is_right,
        rollouts=net.size,
        square=float(np.sum(net**2)),
        size=float(np.abs(net).sum()),
        to_shared=_push(net, [key == shared for key in each.keys]),
        to_right=None if grades is None else _push(net, grades.correct),
        penalized=score.penalized,
    )


def _push(net: Floats, chosen: Sequence[bool]) -> float:
    """The sum of (A − the group's mean A) over chosen rollouts. `chosen` may go on beyond the group's end."""
    return float((net - net.mean())[np.array(chosen[: net.size])].sum())


def _trained_on(method: Method, frozen: FrozenPass) -> Iterator[FrozenGroup]:
    kept = frozen.groups
    if method.selection is not None:
        chosen = bytearray(frozen.count)
        for place in method.selection([group.row.majority_share for group in frozen.groups]):
            chosen[place] = True
        kept = (group for is_chosen, group in zip(chosen, frozen.groups, strict=True) if is_chosen)
    return (group for group in kept if group.gold is not None or not method.reads_gold)


def _share(part: float, total: float) -> float | None:
    return part / total if total else None


def _on_wrong(groups: Sequence[_GroupAdvantage]) -> Ratio | None:
    """The share of squared advantage on groups whose majority is wrong; None if there is no advantage."""
    total = sum(each.square for each in groups)
    if not total:
        return None
    share = sum(each.square for each in groups if not each.majority_is_right) / total
    # Each prompt's deviation of a ratio estimator, to first order.
    spread = sum((((not each.majority_is_right) - share) * each.square) ** 2 for each in groups)
    reach = Z * sqrt(spread) / total
    return Ratio(share, max(0.0, share - reach), min(1.0, share + reach))
