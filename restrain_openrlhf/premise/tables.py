"""The diagnosis as tables for a terminal."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from restrain_openrlhf.premise.diagnosis import Gold, Premise
from restrain_openrlhf.premise.learning import Learning


def tables(premise: Premise) -> Iterator[Table]:
    """Sizes (with reliability where there is gold), where methods learn, common answers."""
    yield _sizes(premise)
    yield _methods(premise)
    yield _common(premise)


def _sizes(premise: Premise) -> Table:
    chosen = premise.chosen
    table = Table(
        title=f"{premise.prompts} prompts × {premise.n} rollouts: size M of the frozen model's majority",
        caption=f"{chosen.name} penalises {chosen.prompts_penalized:.1%} of the prompts. Missing answers: "
        f"{premise.missing.share:.1%} of rollouts." + _of_gold(premise.gold),
        box=SIMPLE_HEAD,
    )
    for column in ("M", "prompts", "share", "majority right", "M or more", f"right, M to {premise.n - 1}"):
        table.add_column(column, justify="right", no_wrap=True)
    for size, count in enumerate(premise.sizes):
        if count:
            table.add_row(str(size), str(count), f"{count / premise.prompts:.1%}", *_reliability(premise, size))
    return table


def _of_gold(gold: Gold | None) -> str:
    if gold is None:
        return ""
    share = gold.right.right.share
    return f" {gold.prompts} prompts have gold: pass@1 {gold.pass_at_1:.1%}, majority right {share:.1%}."


def _reliability(premise: Premise, size: int) -> tuple[str, str, str]:
    kept = f"{sum(premise.sizes[size:]) / premise.prompts:.1%}"
    if premise.gold is None:
        return "–", kept, "–"
    row = next((row for row in premise.gold.by_size if row.size == size), None)
    more = next((trust for trust in premise.gold.at_least if trust.low == size), None)
    mine = f"{row.majority_accuracy:.0%} [{row.majority_low:.0%}, {row.majority_high:.0%}]" if row else "–"
    return mine, kept, f"{more.right.share:.0%} [{more.interval[0]:.0%}, {more.interval[1]:.0%}]" if more else "–"


def _methods(premise: Premise) -> Table:
    table = Table(
        title="Where each method learns: share of its squared advantage, by majority size M",
        caption="κ: in penalised groups. wrong: where the majority is wrong, of the others. right, common: what right "
        "answers and the most common one gain, of all |A| (0.50 at most). |A|: its mean."
        + "".join(f"\n{escape(one.name)} is left out: {escape(one.reason)}" for one in premise.left_out),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in ("method", *map(str, premise.bins), "κ", "wrong", "right", "common", "|A|"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for one in premise.methods:
        table.add_row(one.name.replace(f"{premise.chosen.name}, ", "– "), *_method(one))
    return table


def _method(one: Learning) -> list[str]:
    shares = [f"{share:.0%}" for share in (*one.by_size, one.penalized)]
    wrong = "–" if one.on_wrong is None else f"{one.on_wrong.share:.0%}"
    pushes = [_signed(one.right_push), _signed(one.shared_push)]
    return [*shares, wrong, *pushes, f"{one.mean_advantage:.3f}"]


def _signed(push: float | None) -> str:
    return "–" if push is None else f"{push:+.2f}"


def _common(premise: Premise) -> Table:
    table = Table(title="The most common answers across prompts", box=SIMPLE_HEAD)
    columns = ("answer", "rollouts", "prompts", "majority", "M < ¾n", "M ≥ ¾n", "gold", "shortcut")
    for column in columns:
        table.add_column(column, justify="left" if column in ("answer", "shortcut") else "right")
    for one in premise.common:
        parts = [f"{part.count}/{part.of}" for part in (one.majorities, one.unsure, one.sure)]
        gold = f"{one.excess.gold.share:.1%}" if one.excess else "–"
        shortcut = one.reason.value if one.reason else "no"
        table.add_row(escape(one.text), f"{one.share:.1%}", str(one.prompts), *parts, gold, shortcut)
    return table
