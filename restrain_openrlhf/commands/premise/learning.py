"""Where each method would learn: its squared advantage on the frozen model's groups, by the size of the majority."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

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
    """A share of a total over prompts, with its bounds at 95 % (prompts drawn anew, to first order)."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Learning:
    """One method on the first step's groups; advantages are A⁺ + A⁻, u_x included. Shares are in [0, 1].

    `by_size[b]` is the share of squared advantage on the prompts of bin b, `penalized` that of penalised groups.
    `on_wrong` is the share on prompts whose majority is wrong, of all groups with gold that are not penalised. A push
    is the sum of (A − the group's mean A) over some rollouts, relative to the sum of |A| over all: `shared_push` over
    those with the most common answer, `right_push` over those that are right, of the groups with gold. 0.5 is the most.
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
        """As a column of a table has it."""
        return f"{self.low}-{self.high}" if self.low < self.high else str(self.low)


def quarters(n: int) -> tuple[Bin, ...]:
    """Sizes 0 to n in four bins of (nearly) equal width, fewer for n < 4."""
    edges = sorted({-1, *(ceil(n * quarter / 4) for quarter in range(1, 5))})
    return tuple(Bin(low + 1, high) for low, high in pairwise(edges))


def compared(frozen: FrozenPass, settings: CommonSettings, shared: str | None) -> tuple[list[Learning], dict[str, str]]:
    """The chosen method, then all others at their defaults; and why those left out do not apply.

    `shared` is the key of the most common answer. Raises as `learning` where the chosen method does not apply.
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
    """One method on the groups that it trains on.

    Raises GroupError where it draws its groups otherwise, DataError where it reads gold and no prompt has any.
    """
    groups = _trained_on(method, frozen)
    scores = [
        score_group(method, each.group, each.row, each.gold, str(each.row.id), None, frozen.kind, each.row.row)
        for each in groups
    ]
    net = [score.pair.net for score in scores]
    squares = np.array([float(np.sum(advantages**2)) for advantages in net])
    sizes = np.array([group.row.majority_count for group in groups])
    penalized = np.array([score.penalized for score in scores])
    graded = [place for place, group in enumerate(groups) if group.gold is not None]
    learned = [place for place in graded if not penalized[place]]
    wrong = np.array([not groups[place].majority_is_right for place in learned], dtype=bool)
    right = [each.grades.correct for each in groups if each.grades is not None]
    return Learning(
        name=name,
        prompts=len(groups),
        prompts_penalized=float(np.mean(penalized)),
        mean_advantage=float(np.mean(np.abs(np.concatenate(net)))),
        by_size=tuple(_share(squares, (sizes >= b.low) & (sizes <= b.high)) for b in quarters(frozen.n)),
        penalized=_share(squares, penalized),
        shared_push=None if shared is None else _push(net, [[key == shared for key in each.keys] for each in groups]),
        right_push=_push([net[place] for place in graded], right),
        on_wrong=_ratio(squares[learned], wrong),
        reads_gold=method.reads_gold,
    )


def _trained_on(method: Method, frozen: FrozenPass) -> Sequence[FrozenGroup]:
    kept: Sequence[FrozenGroup] = frozen.groups
    if method.selection is not None:
        kept = [kept[place] for place in method.selection([group.row.majority_share for group in kept])]
    if method.reads_gold:
        kept = [group for group in kept if group.gold is not None]
    if not kept:
        raise DataError("It trains on none of these prompts: it reads gold, or selects by a share that none reaches.")
    return kept


def _share(squares: Floats, of: np.ndarray) -> float:
    return float(squares[of].sum() / squares.sum()) if squares.sum() > 0 else 0.0


def _push(net: Sequence[Floats], chosen: Sequence[Sequence[bool]]) -> float | None:
    """None where every advantage is 0. `chosen` may be longer than a group that is trained on in part."""
    total = sum(float(np.abs(one).sum()) for one in net)
    pushed = sum(
        float((one - one.mean())[np.array(rollouts[: one.size])].sum())
        for one, rollouts in zip(net, chosen, strict=True)
    )
    return pushed / total if total else None


def _ratio(squares: Floats, of: np.ndarray) -> Ratio | None:
    """None where every advantage is 0."""
    if squares.sum() == 0:
        return None
    share = _share(squares, of)
    reach = Z * float(np.sqrt(np.sum((squares * of - share * squares) ** 2)) / squares.sum())
    return Ratio(share, max(0.0, share - reach), min(1.0, share + reach))
