"""`restrain eval`: evaluation on benchmarks."""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from restrain_openrlhf.cli.options import BenchmarkDir, ShardOption, parse_shard, to_folder
from restrain_openrlhf.cli.regrade import Export, Grading, Second
from restrain_openrlhf.errors import ConfigError


def evaluate(
    model: Annotated[str, typer.Option(help="Model: a hub id or a local folder.")],
    benchmarks: Annotated[
        str,
        typer.Option(
            help="Comma-separated: names, NAME=PATH or paths, such as aime24,mine=m.jsonl; table1 and table3 are those "
            "of the paper's tables."
        ),
    ],
    out: Annotated[Path, to_folder("Output folder for responses, grades and results.")],
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
    export: Export = None,
    second_grader: Second = None,
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
    grading = Grading(export, second_grader)
    grading.check()
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
        grading.run([BenchmarkFolder(each.path.parent) for each in job.passes], out)
    else:
        console.print(f"shard {shard} is done. When all are: restrain regrade {out}{grading.words}")


def _words(benchmarks: str) -> list[str]:
    from restrain_openrlhf.evaluation.benchmarks import SUITES  # noqa: PLC0415

    given = [word.strip() for word in benchmarks.split(",") if word.strip()]
    words = list(dict.fromkeys(name for word in given for name in SUITES.get(word, (word,))))
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
