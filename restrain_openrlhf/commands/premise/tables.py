"""The diagnosis as tables for a terminal."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from restrain_openrlhf.commands.premise.diagnosis import Premise


def tables(premise: Premise) -> Iterator[Table]:
    """Sizes (with reliability where there is gold), where methods learn, common answers."""
    yield _sizes(premise)
    yield _methods(premise)
    yield _common(premise)


def _table(columns: Sequence[str], text_columns: Sequence[str], title: str, caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(
            column, justify="left" if column in text_columns else "right", no_wrap=column not in text_columns
        )
    return table


def _sizes(premise: Premise) -> Table:
    chosen, gold = premise.chosen, premise.gold
    caption = f"{chosen.name} penalises {chosen.prompts_penalized:.1%} of the prompts. "
    caption += f"Missing answers: {premise.missing_share:.1%} of rollouts."
    if gold is not None:
        caption += (
            f" {gold.prompts} prompts have gold: pass@1 {gold.pass_at_1:.1%}, majority right {gold.right.share:.1%}."
        )
    table = _table(
        ("M", "prompts", "share", "majority right"),
        (),
        f"{premise.prompts} prompts × {premise.n} rollouts: size M of the frozen model's majority",
        caption,
    )
    right = {
        row.size: f"{row.majority_accuracy:.0%} [{row.majority_low:.0%}, {row.majority_high:.0%}]"
        for row in (gold.by_size if gold else ())
    }
    for size, count in enumerate(premise.sizes):
        if count:
            table.add_row(str(size), str(count), f"{count / premise.prompts:.1%}", right.get(size, "–"))
    return table


def _methods(premise: Premise) -> Table:
    table = _table(
        ("method", *map(str, premise.bins), "κ", "wrong", "right", "common", "|A|"),
        ("method",),
        "Where each method learns: share of its squared advantage, by majority size M",
        "κ: in penalised groups. wrong: where the majority is wrong, of the others. right, common: what right "
        "answers and the most common one gain, of all |A| (0.50 at most). |A|: its mean."
        + "".join(f"\n{escape(name)} is left out: {escape(reason)}" for name, reason in premise.left_out.items()),
    )
    for one in premise.methods:
        shares = [f"{share:.0%}" for share in (*one.by_size, one.penalized)]
        wrong = "–" if one.on_wrong is None else f"{one.on_wrong.share:.0%}"
        pushes = ["–" if push is None else f"{push:+.2f}" for push in (one.right_push, one.shared_push)]
        name = one.name.replace(f"{premise.chosen.name}, ", "– ")
        table.add_row(name, *shares, wrong, *pushes, f"{one.mean_advantage:.3f}")
    return table


def _common(premise: Premise) -> Table:
    columns = ("answer", "rollouts", "prompts", "M < ¾n", "M ≥ ¾n", "gold", "shortcut")
    table = _table(columns, ("answer", "shortcut"), "The most common answers across prompts")
    for one in premise.common:
        parts = [f"{part.count}/{part.of}" for part in (one.unsure, one.sure)]
        gold = f"{one.excess.gold.share:.1%}" if one.excess else "–"
        shortcut = one.reason.value if one.reason else "no"
        table.add_row(escape(one.text), f"{one.share:.1%}", str(one.prompts), *parts, gold, shortcut)
    return table
