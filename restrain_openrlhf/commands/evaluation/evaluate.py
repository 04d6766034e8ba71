"""`restrain eval`: evaluation on benchmarks."""

import re
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from restrain_openrlhf.commands.evaluation.regrade import SecondGrader, grade_folders
from restrain_openrlhf.commands.options import parse_shard, with_options
from restrain_openrlhf.data.outputs import output_folder
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.protocol import Request


@with_options(Request)
def evaluate(request: Request, second_grader: SecondGrader = None) -> None:
    """Evaluate a model on benchmarks and keep every response. To resume, run the same command."""
    from restrain_openrlhf.data.benchmarks import load_benchmark  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.evaluation.job import prepare  # noqa: PLC0415
    from restrain_openrlhf.evaluation.math_verify import second_grader as start  # noqa: PLC0415
    from restrain_openrlhf.evaluation.result import BenchmarkFolder  # noqa: PLC0415
    from restrain_openrlhf.reference.all_gpus import ShardedPass  # noqa: PLC0415
    from restrain_openrlhf.reference.sampling_pass import Shard  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    output_folder(request.out)
    part = Shard(*parse_shard(request.shard))
    request.chosen_protocol()
    request.labels()
    with start(second_grader):
        pass  # One that is not there is told before anything is sampled.
    loaded = [load_benchmark(word, request.benchmark_dir) for word in _words(request.benchmarks)]
    for entry in loaded:
        if entry.warning:
            console.print(f"note: {entry.warning}")
    job = prepare(request, loaded, part)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("responses", total=sum(len(each.prompts) for each in job.passes))
        everywhere = ShardedPass([each.path for each in job.passes], request.tensor_parallel_size)
        shards = everywhere.shards() if part.count == 1 else [part]
        if len(shards) > 1:
            everywhere.run(shards, lambda rows: progress.advance(task, rows))
        else:
            job.run(lambda done: progress.advance(task, done))
    if part.count == 1:
        grade_folders([BenchmarkFolder(each.path.parent) for each in job.passes], second_grader)
    else:
        again = f" --second-grader {second_grader}" if second_grader else ""
        console.print(f"shard {request.shard} is done. When all are: restrain regrade {request.out}{again}")


def _words(benchmarks: str) -> list[str]:
    from restrain_openrlhf.data.benchmarks import SUITES  # noqa: PLC0415

    given = [word.strip() for word in benchmarks.split(",") if word.strip()]
    words = list(dict.fromkeys(name for word in given for name in SUITES.get(word, (word,))))
    names = [word.partition("=")[0] if "=" in word else Path(word).stem for word in words]
    if not words or len(set(names)) != len(names):
        raise ConfigError(f"--benchmarks {benchmarks!r}: give one or more names, each once, such as aime24,math500.")
    for name in names:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"--benchmarks: {name!r} cannot name a folder. Use letters, digits, dots and dashes.")
    return words
