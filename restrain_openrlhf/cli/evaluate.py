"""`restrain eval`, `restrain regrade` and `restrain table`: evaluation on benchmarks, grading, and tables."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from restrain_openrlhf.cli.options import BenchmarkDir, ShardOption, parse_shard
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.evaluation.responses import BenchmarkFolder
    from restrain_openrlhf.evaluation.result import Result, Scores


def evaluate(
    model: Annotated[str, typer.Option(help="Model: a hub id or a local folder.")],
    benchmarks: Annotated[
        str, typer.Option(help="Comma-separated: names, NAME=PATH or paths, such as aime24,mine=m.jsonl.")
    ],
    out: Annotated[Path, typer.Option(help="Output folder for responses, grades and results.")],
    protocol: Annotated[
        str, typer.Option(help="paper (T 0.6, top-p 0.95, 16 responses), greedy, or qwen25-math.")
    ] = "paper",
    n: Annotated[int | None, typer.Option(min=1, help="Responses per problem.", show_default="the protocol's")] = None,
    shard: ShardOption = "0/1",
    template: Annotated[
        str, typer.Option(help="Prompt template: a name, or a text with {} (docs/journeys/evaluation.md).")
    ] = "auto",
    benchmark_dir: BenchmarkDir = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest response, in tokens.", show_default="the protocol's")
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(min=0, help="Worked examples before each problem.", show_default="the protocol's"),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Longest prompt with response, in tokens.", show_default="the model's")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same responses.")] = 42,
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="GPUs per vLLM engine.")] = 1,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Label for figures, such as sigma=0.5. Repeatable.")
    ] = None,
) -> None:
    """Evaluate a model on benchmarks and keep every response. To resume, run the same command."""
    from restrain_openrlhf.evaluation.job import Request, prepare  # noqa: PLC0415
    from restrain_openrlhf.evaluation.loading import load_benchmark  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.protocol import choose_protocol  # noqa: PLC0415
    from restrain_openrlhf.evaluation.responses import BenchmarkFolder  # noqa: PLC0415
    from restrain_openrlhf.run.all_gpus import ShardedPass, own_words  # noqa: PLC0415
    from restrain_openrlhf.sampling_pass import Shard  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    part = Shard(*parse_shard(shard))
    chosen = choose_protocol(protocol, n, max_new_tokens, seed)
    labels = dict(parse_label(text) for text in label or [])
    loaded = [load_benchmark(word, benchmark_dir) for word in _words(benchmarks)]
    for entry in loaded:
        if entry.warning:
            console.print(f"note: {entry.warning}")
    request = Request(model, out, chosen, template, part, context, tensor_parallel_size, labels, shots)
    job = prepare(request, loaded)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("responses", total=sum(len(each.prompts) for each in job.passes))
        everywhere = ShardedPass(own_words(), [each.path for each in job.passes], tensor_parallel_size)
        shards = everywhere.shards() if part.count == 1 else [part]
        if len(shards) > 1:
            everywhere.run(shards, lambda rows: progress.advance(task, rows))
        else:
            job.run(lambda done: progress.advance(task, done))
    if part.count == 1:
        _grade([BenchmarkFolder(each.path.parent) for each in job.passes])
    else:
        console.print(f"shard {shard} is done. When all are: restrain regrade {out}")


def _words(benchmarks: str) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in benchmarks.split(",") if word.strip()))
    names = [word.partition("=")[0] if "=" in word else Path(word).stem for word in words]
    if not words or len(set(names)) != len(names):
        raise ConfigError(f"--benchmarks {benchmarks!r}: give one or more names, each once, such as aime24,math500.")
    for name in names:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"--benchmarks: {name!r} cannot name a folder. Use letters, digits, dots and dashes.")
    return words


def parse_label(text: str) -> tuple[str, str]:
    """`sigma=0.5` as (sigma, 0.5). Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise ConfigError(f"--label {text!r}: give KEY=VALUE, such as sigma=0.5.")
    return key, value


def regrade(
    path: Annotated[Path, typer.Argument(help="Folder of `restrain eval`, or a file of rollouts with gold answers.")],
    gold: Annotated[Path | None, typer.Option(help="Gold answers, for a file of rollouts without them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file for the grades of a file of rollouts.")] = None,
) -> None:
    """Grade stored responses again. Where rows have a reference grading, list the differences."""
    if path.is_dir():
        if gold or out:
            raise ConfigError(
                f"{path}: is a folder of `restrain eval` and has its own gold and grades. Leave out --gold and --out."
            )
        _regrade_run(path)
    else:
        _regrade_rollouts(path, gold, out)


def _regrade_run(run: Path) -> None:
    from restrain_openrlhf.evaluation.result import benchmark_folders  # noqa: PLC0415

    _grade(benchmark_folders(run))


def _grade(folders: "Sequence[BenchmarkFolder]") -> None:
    from restrain_openrlhf.evaluation.result import grade_folder  # noqa: PLC0415

    for folder in folders:
        result, changed = grade_folder(folder)
        Console(soft_wrap=True, highlight=False).print(_line(result), markup=False)
        if changed.grades:
            Console(stderr=True).print(f"{folder.path.name}: {changed.grades} of {changed.of} grades changed.")


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


def _regrade_rollouts(path: Path, gold: Path | None, out: Path | None) -> None:
    from restrain_openrlhf.data.jsonl import write_rows  # noqa: PLC0415
    from restrain_openrlhf.evaluation.grade import differences, grade_rollouts, read_rollouts  # noqa: PLC0415
    from restrain_openrlhf.evaluation.result import scores  # noqa: PLC0415

    console = Console(soft_wrap=True, highlight=False)
    if out and out.resolve() == path.resolve():
        raise ConfigError(f"--out {out}: is the input file. Name another.")
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


def table(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of `restrain eval`, or NAME=FOLDER.")],
    style: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    paper: Annotated[
        Path | None, typer.Option(help="Numbers to compare with: CSV with run,benchmark,pass_at_1 (per cent).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file.", show_default="the terminal")] = None,
) -> None:
    """Print a table of runs by benchmarks: pass@1 with its confidence interval, and the paper's numbers."""
    from restrain_openrlhf.evaluation.table import build_table, formatter, read_paper  # noqa: PLC0415

    form = formatter(style)
    text = form(build_table([_named(word) for word in runs], read_paper(paper) if paper else {}))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    else:
        typer.echo(text, nl=False)


def _named(word: str) -> tuple[str, Path]:
    name, equals, folder = word.partition("=")
    return (name, Path(folder)) if equals else (Path(word).resolve().name, Path(word))
