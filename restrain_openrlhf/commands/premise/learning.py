"""Where each method would learn: squared advantage on the frozen model's groups, by the size of the majority."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, sqrt

import numpy as np

from restrain_openrlhf.commands.premise.frozen import FrozenGroup
from restrain_openrlhf.errors import ConfigError, DataError, GroupError
from restrain_openrlhf.evaluation.grade import Z
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


def quarters(n: int) -> tuple[tuple[int, int], ...]:
    """Sizes 0 to n in four bins of (nearly) equal width, fewer for n < 4: the least and the largest size of each."""
    edges = sorted({-1, *(ceil(n * quarter / 4) for quarter in range(1, 5))})
    return tuple((low + 1, high) for low, high in pairwise(edges))


class Comparison:
    """The chosen method and all others at their defaults, to which groups of n frozen rollouts are shown one by one.

    `shares` are the majority shares of all prompts, and `shared` is the key of the most common answer. `left_out` says
    for each method that does not apply why. Raises GroupError if the chosen method draws its groups in another way, and
    DataError if it trains on none of the prompts.
    """

    def __init__(self, settings: CommonSettings, shares: Sequence[float], n: int, shared: str | None) -> None:
        self.chosen, self.left_out = settings.name, dict[str, str]()
        self._tried = dict[str, _Sums]()
        for name in dict.fromkeys((self.chosen, *METHODS)):
            with self._leaving_out(name):
                method = build(settings if name == self.chosen else parse_settings({"name": name}))
                chosen = frozenset(method.selection(shares)) if method.selection else None
                self._tried[name] = _Sums(method, chosen, shared, np.zeros(n + 1))

    def add(self, place: int, group: FrozenGroup) -> None:
        """Show the group of one prompt to all methods."""
        for name in list(self._tried):
            with self._leaving_out(name):
                self._tried[name].add(place, group)

    def learnings(self) -> list[Learning]:
        """What each method that applies would learn, the chosen one first."""
        found = []
        for name, sums in list(self._tried.items()):
            with self._leaving_out(name):
                found.append(sums.learning(name))
        return found

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ConfigError, DataError, GroupError) as error:
            if name == self.chosen:
                raise
            self.left_out[name] = str(error)
            self._tried.pop(name, None)


@dataclass
class _Sums:
    """Sums over the groups that one method trains on. `size` sums |A|, and `squares` A² for each size of the majority.

    `by_majority` has A² and its square summed for the groups with gold that are not penalised: row 1 for right
    majorities, row 0 for wrong ones.
    """

    method: Method
    chosen: frozenset[int] | None
    shared: str | None
    squares: Floats
    by_majority: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    prompts: int = 0
    rollouts: int = 0
    size: float = 0.0
    size_with_gold: float = 0.0
    to_shared: float = 0.0
    to_right: float = 0.0
    prompts_penalized: int = 0
    penalized: float = 0.0

    def add(self, place: int, group: FrozenGroup) -> None:
        """Add a prompt's group, unless the method does not train on it."""
        row, gold = group.row, group.gold
        if (self.chosen is not None and place not in self.chosen) or (gold is None and self.method.reads_gold):
            return
        score = score_group(self.method, group.group, row, gold, str(row.id), None, group.kind, row.row)
        net = score.pair.net
        square, size = float(np.sum(net**2)), float(np.abs(net).sum())
        self.prompts += 1
        self.rollouts += net.size
        self.size += size
        self.squares[row.majority_count] += square
        self.to_shared += _push(net, [key == self.shared for key in group.keys])
        if group.grades is not None:
            self.size_with_gold += size
            self.to_right += _push(net, group.grades.correct)
        if score.penalized:
            self.prompts_penalized += 1
            self.penalized += square
        elif group.grades is not None:
            self.by_majority[int(group.majority_is_right)] += square, square**2

    def learning(self, name: str) -> Learning:
        """The shares. Raises DataError if the method trained on no group."""
        if not self.prompts:
            raise DataError(
                "It trains on none of these prompts: it reads gold, or selects by a share that none reaches."
            )
        total = float(self.squares.sum()) or 1.0
        in_bins = [self.squares[low : high + 1] for low, high in quarters(len(self.squares) - 1)]
        return Learning(
            name=name,
            prompts=self.prompts,
            prompts_penalized=self.prompts_penalized / self.prompts,
            mean_advantage=self.size / self.rollouts,
            by_size=tuple(float(part.sum()) / total for part in in_bins),
            penalized=self.penalized / total,
            shared_push=self.to_shared / self.size if self.shared is not None and self.size else None,
            right_push=self.to_right / self.size_with_gold if self.size_with_gold else None,
            on_wrong=_share(*self.by_majority.tolist()),
            reads_gold=self.method.reads_gold,
        )


def _push(net: Floats, chosen: Sequence[bool]) -> float:
    """The sum of (A − the group's mean A) over chosen rollouts. `chosen` may go on beyond the group's end."""
    return float((net - net.mean())[np.array(chosen[: net.size])].sum())


def _share(part: tuple[float, float], rest: tuple[float, float]) -> Ratio | None:
    """The share of `part` in `part` and `rest`, each a sum over prompts and the sum of squares; None if all are 0."""
    total = part[0] + rest[0]
    if not total:
        return None
    share = part[0] / total
    reach = Z * sqrt((1 - share) ** 2 * part[1] + share**2 * rest[1]) / total
    return Ratio(share, max(0.0, share - reach), min(1.0, share + reach))
