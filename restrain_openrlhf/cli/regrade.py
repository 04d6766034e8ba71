"""`restrain regrade`, and the end of `restrain eval`: grading, the second grader, and files for other tools."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from restrain_openrlhf.cli.options import GOLD, to_file
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.evaluation.grade import GradeRow, RolloutsRow
    from restrain_openrlhf.evaluation.math_verify_process import MathVerify
    from restrain_openrlhf.evaluation.responses import BenchmarkFolder
    from restrain_openrlhf.evaluation.result import Result, Scores
    from restrain_openrlhf.evaluation.second_grader import SecondGrading

Export = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="Write results for other tools, too: lm-eval (its --log_samples).")
]
Second = Annotated[
    str | None,
    typer.Option(
        "--second-grader", metavar="NAME[=FOLDER]", help="Grade by math-verify, too, and list where the two differ."
    ),
]


@dataclass(frozen=True)
class Grading:
    """What is done with stored responses besides our grades: an export's format, a second grader's name."""

    export: str | None = None
    second: str | None = None

    @property
    def words(self) -> str:
        """As the options of a command line, each with a space before it."""
        export = f" --export {self.export}" if self.export else ""
        return export + (f" --second-grader {self.second}" if self.second else "")

    def check(self) -> None:
        """Before anything is sampled. Raises ConfigError for a format or a grader that there is not."""
        from restrain_openrlhf.evaluation.lm_eval import check_format  # noqa: PLC0415

        if self.export:
            check_format(self.export)
        with self.second_grader():
            pass

    def second_grader(self) -> "AbstractContextManager[MathVerify | None]":
        """The second grader, not started yet, or nothing."""
        from restrain_openrlhf.evaluation.math_verify_process import second_grader  # noqa: PLC0415

        return second_grader(self.second) if self.second else nullcontext()

    def run(self, folders: "Sequence[BenchmarkFolder]", out: Path) -> None:
        """Grade every benchmark of the evaluation in `out`, print its numbers, and write the export."""
        from restrain_openrlhf.evaluation.lm_eval import export  # noqa: PLC0415
        from restrain_openrlhf.evaluation.result import grade_folder  # noqa: PLC0415

        console = Console(soft_wrap=True, highlight=False)
        with self.second_grader() as grader:
            for folder in folders:
                result, changed = grade_folder(folder, grader)
                console.print(_line(result), markup=False)
                if result.second:
                    console.print(_second_line(result.second, folder.differences), markup=False)
                if changed.grades:
                    Console(stderr=True).print(f"{folder.path.name}: {changed.grades} of {changed.of} grades changed.")
        if self.export:
            for path in export(folders, out / self.export):
                console.print(path)


def regrade(
    path: Annotated[Path, typer.Argument(help="Folder of `restrain eval`, or a file of rollouts with gold answers.")],
    gold: Annotated[Path | None, typer.Option(help=f"For a file of rollouts without them. {GOLD}")] = None,
    out: Annotated[Path | None, to_file("Output file for the grades of a file of rollouts.")] = None,
    export: Export = None,
    second_grader: Second = None,
) -> None:
    """Grade stored responses again. Where rows have a reference grading, list the differences."""
    from restrain_openrlhf.evaluation.result import benchmark_folders  # noqa: PLC0415 - keeps `--help` quick

    grading = Grading(export, second_grader)
    if path.is_dir():
        if gold or out:
            raise ConfigError(
                f"{path}: is a folder of `restrain eval` and has its own gold and grades. Leave out --gold and --out."
            )
        grading.check()
        grading.run(benchmark_folders(path), path)
    else:
        _regrade_rollouts(path, gold, out, grading)


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


def _second_line(second: "SecondGrading", listed: Path) -> str:
    kappa = "–" if second.kappa is None else f"{second.kappa:.3f}"
    return (
        f"  {second.grader} {second.version}: pass@1 {second.pass_at_1:.1%}, agrees on {second.agree} of {second.of} "
        f"responses ({second.agree / second.of:.1%}, kappa {kappa}), {second.given_up} given up; differences: {listed}"
    )


def _regrade_rollouts(path: Path, gold: Path | None, out: Path | None, grading: Grading) -> None:
    from restrain_openrlhf.data.jsonl import write_rows  # noqa: PLC0415
    from restrain_openrlhf.evaluation.grade import differences, grade_rollouts, read_rollouts  # noqa: PLC0415
    from restrain_openrlhf.evaluation.result import scores  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False)
    if out and out.resolve() == path.resolve():
        raise ConfigError(f"--out {out}: is the input file. Name another.")
    if grading.export:
        raise ConfigError(f"--export {grading.export}: needs a folder of `restrain eval`, and {path} is a file.")
    if grading.second and not out:
        raise ConfigError("--second-grader with a file of rollouts: give --out, differences are listed beside it.")
    grading.check()
    rollouts = read_rollouts(path)
    grades = grade_rollouts(rollouts, path, gold)
    if out:
        write_rows(out, grades)
    total = scores(grades)
    size = f"{len(grades)} problems, {len(grades[0].correct)} responses each"
    console.print(f"{size}: pass@1 {total.pass_at_1:.2%} {_intervals(total)}", markup=False)
    compared = sum(len(row.reference_correct or ()) for row in rollouts)
    if compared:
        found = differences(rollouts, grades)
        console.print(f"reference grading: {compared - len(found)} of {compared} agree, {len(found)} differ")
        for difference in found:
            console.print(f"  {difference}", markup=False)
    if grading.second and out:
        _grade_rollouts_again(rollouts, grades, out.with_name(f"{out.stem}.differences.jsonl"), grading)


def _grade_rollouts_again(
    rollouts: "Sequence[RolloutsRow]", grades: "Sequence[GradeRow]", listed: Path, grading: Grading
) -> None:
    from restrain_openrlhf.data.jsonl import write_rows  # noqa: PLC0415
    from restrain_openrlhf.evaluation.second_grader import Asked, grade_again  # noqa: PLC0415

    asked = [Asked(row.problem, row.responses, graded) for row, graded in zip(rollouts, grades, strict=True)]
    with grading.second_grader() as grader:
        if grader:
            second, found = grade_again(asked, grader)
            write_rows(listed, found)
            Console(soft_wrap=True, highlight=False).print(_second_line(second, listed), markup=False)
