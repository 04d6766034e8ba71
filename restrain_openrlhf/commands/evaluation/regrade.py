"""`restrain regrade`, and the end of `restrain eval`: stored responses are graded, by a second grader too if asked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import GOLD, to_file
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.evaluation.math_verify import MathVerify
    from restrain_openrlhf.evaluation.result import BenchmarkFolder, Result, Scores

SecondGrader = Annotated[
    str | None,
    typer.Option(
        "--second-grader", metavar="NAME[=FOLDER]", help="Grade by math-verify, too, and list where the two differ."
    ),
]


def grade_folders(folders: "Sequence[BenchmarkFolder]", second: str | None) -> None:
    """Grade every benchmark of an evaluation, and print its numbers."""
    from restrain_openrlhf.evaluation.math_verify import second_grader  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.result import grade_folder  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False)
    with second_grader(second) as grader:
        for folder in folders:
            result, changed = grade_folder(folder, grader)
            console.print(_line(result), markup=False)
            if result.second:
                console.print(f"  {result.second}; differences: {folder.differences}", markup=False)
            if any(changed):
                Console(stderr=True).print(f"{folder.path.name}: {sum(changed)} of {len(changed)} grades changed.")


def regrade(
    path: Annotated[Path, typer.Argument(help="Folder of `restrain eval`, or a file of rollouts with gold answers.")],
    gold: Annotated[Path | None, typer.Option(help=f"For a file of rollouts without them. {GOLD}")] = None,
    out: Annotated[Path | None, to_file("Output file for the grades of a file of rollouts.")] = None,
    second_grader: SecondGrader = None,
) -> None:
    """Grade stored responses again. Where rows have a reference grading, list the differences."""
    from restrain_openrlhf.evaluation.math_verify import second_grader as start  # noqa: PLC0415
    from restrain_openrlhf.evaluation.result import benchmark_folders  # noqa: PLC0415

    if path.is_dir():
        if gold or out:
            raise ConfigError(
                f"{path}: is a folder of `restrain eval` and has its own gold and grades. Leave out --gold and --out."
            )
        grade_folders(benchmark_folders(path), second_grader)
        return
    if out and out.resolve() == path.resolve():
        raise ConfigError(f"--out {out}: is the input file. Name another.")
    if second_grader and not out:
        raise ConfigError("--second-grader with a file of rollouts: give --out, differences are listed beside it.")
    with start(second_grader) as grader:
        _regrade_rollouts(path, gold, out, grader)


def _regrade_rollouts(path: Path, gold: Path | None, out: Path | None, grader: "MathVerify | None") -> None:
    from restrain_openrlhf.data.jsonl import write_rows  # noqa: PLC0415
    from restrain_openrlhf.evaluation.grade import differences, grade_rollouts, read_rollouts  # noqa: PLC0415
    from restrain_openrlhf.evaluation.math_verify import grade_again  # noqa: PLC0415
    from restrain_openrlhf.evaluation.result import scores  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False, markup=False)
    rollouts = read_rollouts(path)
    grades = grade_rollouts(rollouts, path, gold)
    if out:
        write_rows(out, grades)
    total = scores(grades)
    size = f"{len(grades)} problems, {len(grades[0].correct)} responses each"
    console.print(f"{size}: pass@1 {total.pass_at_1:.2%} {_intervals(total)}")
    compared = sum(len(row.reference_correct or ()) for row in rollouts)
    if compared:
        found = differences(rollouts, grades)
        console.print(f"reference grading: {compared - len(found)} of {compared} agree, {len(found)} differ")
        for difference in found:
            console.print(f"  {difference}")
    if grader and out:
        second, differing = grade_again(rollouts, grades, grader)
        listed = out.with_name(f"{out.stem}.differences.jsonl")
        write_rows(listed, differing)
        console.print(f"  {second}; differences: {listed}")


def _line(result: "Result") -> str:
    scores, how = result.scores, result.provenance
    return (
        f"{how.title}: pass@1 {scores.pass_at_1:.1%} {_intervals(scores)}, "
        f"pass@{how.n} {scores.pass_at_k[how.n]:.1%}, maj@{how.n} {scores.maj_at_k[how.n]:.1%}; "
        f"{how.problems} problems, {how.n} responses each, {scores.mean_tokens:.0f} tokens, "
        f"truncated {scores.truncated_share:.1%}, no answer {scores.missing_share:.1%}; "
        f"template {how.template}, protocol {how.protocol}"
    )


def _intervals(scores: "Scores") -> str:
    over_problems = f"[{scores.low:.1%}, {scores.high:.1%}] over problems"
    if scores.samples_low is None:
        return over_problems
    return f"{over_problems}, [{scores.samples_low:.1%}, {scores.samples_high:.1%}] over samples"
