"""Where each method would learn: its squared advantage on the frozen model's groups, by the size of the majority."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _Columns:
    """What is kept of each group that a method trains on.

    `wrong` says of each group whose gold is known, and that is not penalised, whether its majority is wrong; `learned`
    are the places of those groups.
    """

    squares: "array[float]" = field(default_factory=lambda: array("d"))
    sizes: "array[int]" = field(default_factory=lambda: array("l"))
    penalized: bytearray = field(default_factory=bytearray)
    learned: "array[int]" = field(default_factory=lambda: array("l"))
    wrong: bytearray = field(default_factory=bytearray)


@dataclass
class _Push:
    """The sum of (A − the group's mean A) over chosen rollouts, of the sum of |A| over all."""

    pushed: float = 0.0
    total: float = 0.0

    def add(self, net: Floats, chosen: Sequence[bool]) -> None:
        """One group more. `chosen` may be longer than a group that is trained on in part."""
        self.total += float(np.abs(net).sum())
        self.pushed += float((net - net.mean())[np.array(chosen[: net.size])].sum())

    @property
    def share(self) -> float | None:
        """None where every advantage is 0."""
        return self.pushed / self.total if self.total else None


def learning(name: str, method: Method, frozen: FrozenPass, shared: str | None) -> Learning:
    """One method on the groups that it trains on, one at a time.

    Raises GroupError where it draws its groups otherwise, DataError where it reads gold and no prompt has any.
    """
    columns, size, rollouts = _Columns(), 0.0, 0
    to_shared, to_right = _Push(), _Push()
    for each in _trained_on(method, frozen):
        gold, row = each.gold, each.row
        score = score_group(method, each.group, row, gold, str(row.id), None, frozen.kind, row.row)
        net = score.pair.net
        size, rollouts = size + float(np.abs(net).sum()), rollouts + net.size
        if shared is not None:
            to_shared.add(net, [key == shared for key in each.keys])
        if each.grades is not None:
            to_right.add(net, each.grades.correct)
        if gold is not None and not score.penalized:
            columns.learned.append(len(columns.squares))
            columns.wrong.append(not each.majority_is_right)
        columns.squares.append(float(np.sum(net**2)))
        columns.sizes.append(row.majority_count)
        columns.penalized.append(score.penalized)
    if not columns.squares:
        raise DataError("It trains on none of these prompts: it reads gold, or selects by a share that none reaches.")
    squares, sizes = np.array(columns.squares), np.array(columns.sizes)
    penalized = np.array(columns.penalized, dtype=bool)
    return Learning(
        name=name,
        prompts=len(squares),
        prompts_penalized=float(np.mean(penalized)),
        mean_advantage=size / rollouts,
        by_size=tuple(_share(squares, (sizes >= b.low) & (sizes <= b.high)) for b in quarters(frozen.n)),
        penalized=_share(squares, penalized),
        shared_push=to_shared.share,
        right_push=to_right.share,
        on_wrong=_ratio(squares[np.array(columns.learned, dtype=int)], np.array(columns.wrong, dtype=bool)),
        reads_gold=method.reads_gold,
    )


def _trained_on(method: Method, frozen: FrozenPass) -> Iterator[FrozenGroup]:
    kept: Iterable[FrozenGroup] = frozen.groups
    if method.selection is not None:
        chosen = set(method.selection([group.row.majority_share for group in frozen.groups]))
        kept = (group for place, group in enumerate(frozen.groups) if place in chosen)
    return (group for group in kept if group.gold is not None or not method.reads_gold)


def _share(squares: Floats, of: np.ndarray) -> float:
    return float(squares[of].sum() / squares.sum()) if squares.sum() > 0 else 0.0


def _ratio(squares: Floats, of: np.ndarray) -> Ratio | None:
    """None where every advantage is 0."""
    if squares.sum() == 0:
        return None
    share = _share(squares, of)
    reach = Z * float(np.sqrt(np.sum((squares * of - share * squares) ** 2)) / squares.sum())
    return Ratio(share, max(0.0, share - reach), min(1.0, share + reach))
