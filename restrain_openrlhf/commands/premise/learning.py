"""Where each method would learn: squared advantage on the frozen model's groups, by the size of the majority."""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, sqrt

import numpy as np

from restrain_openrlhf.commands.premise.groups import FrozenGroup, FrozenPass
from restrain_openrlhf.errors import ConfigError, DataError, GroupError
from restrain_openrlhf.evaluation.estimators import Z
from restrain_openrlhf.method import METHODS, GroupScore, Method, build, parse_settings
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
    """One method on the groups that it trains on, which are scored one at a time and not kept: there may be millions.

    Raises GroupError if the method draws its groups in another way, and DataError if it trains on none of these
    prompts.
    """
    sums = _Sums()
    for each in _trained_on(method, frozen):
        row = each.row
        score = score_group(method, each.group, row, each.gold, str(row.id), None, frozen.kind, row.row)
        sums.add(each, score, shared)
    if not sums.prompts:
        raise DataError("It trains on none of these prompts: it reads gold, or selects by a share that none reaches.")
    total = sum(sums.squares.values())
    in_bins = [sum(sums.squares[at] for at in range(each.low, each.high + 1)) for each in quarters(frozen.n)]
    return Learning(
        name=name,
        prompts=sums.prompts,
        prompts_penalized=len(sums.penalized) / sums.prompts,
        mean_advantage=sums.size / sums.rollouts,
        by_size=tuple(part / total if total else 0.0 for part in in_bins),
        penalized=sum(sums.penalized) / total if total else 0.0,
        shared_push=sums.to_shared / sums.size if shared is not None and sums.size else None,
        right_push=sums.to_right / sums.size_with_gold if sums.size_with_gold else None,
        on_wrong=_ratio(sums.on_wrong, sums.on_right),
        reads_gold=method.reads_gold,
    )


@dataclass
class _Sums:
    """Sums over the groups of one method. `size` sums |A|, and `squares` sums A² for each size of the majority.

    `penalized` has the A² of each penalised group, `on_right` and `on_wrong` those of the others whose gold is known,
    by whether their majority is right.
    """

    prompts: int = 0
    rollouts: int = 0
    size: float = 0.0
    to_shared: float = 0.0
    size_with_gold: float = 0.0
    to_right: float = 0.0
    squares: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    penalized: "array[float]" = field(default_factory=lambda: array("d"))
    on_right: "array[float]" = field(default_factory=lambda: array("d"))
    on_wrong: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, group: FrozenGroup, score: GroupScore, shared: str | None) -> None:
        """Add a scored group; `shared` is the key of the most common answer."""
        net = score.pair.net
        square, size = float(np.sum(net**2)), float(np.abs(net).sum())
        self.prompts += 1
        self.rollouts += net.size
        self.size += size
        self.squares[group.row.majority_count] += square
        self.to_shared += _push(net, [key == shared for key in group.keys])
        if group.grades is not None:
            self.size_with_gold += size
            self.to_right += _push(net, group.grades.correct)
        if score.penalized:
            self.penalized.append(square)
        elif group.grades is not None:
            (self.on_right if group.majority_is_right else self.on_wrong).append(square)


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


def _ratio(part: Sequence[float], rest: Sequence[float]) -> Ratio | None:
    """The share of `part` in the sum of `part` and `rest`, which have a number per prompt; None if all are 0."""
    total = sum(part) + sum(rest)
    if not total:
        return None
    share = sum(part) / total
    spread = sum(((1 - share) * each) ** 2 for each in part) + sum((share * each) ** 2 for each in rest)
    reach = Z * sqrt(spread) / total
    return Ratio(share, max(0.0, share - reach), min(1.0, share + reach))
