"""How prompts and benchmarks come to the work volume: fetched by pods with a way out, or copied by hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from restrain_openrlhf.data.catalogue import TRAINING_SETS
from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS

BENCHMARKS_IN_POD = "/mnt/work/data/benchmarks"
SUPERVISED = ".supervised"


def data_words(prompts: str, test_time: bool) -> list[str] | None:
    """`restrain data` words that make this file, by its name; None where it is a file of the user's own.

    Training reads `dapo14k.jsonl` or `dapo14k.supervised.jsonl`, test-time RL a benchmark's problems: `aime24.jsonl`.
    """
    path = PurePosixPath(prompts)
    name = path.stem.removesuffix(SUPERVISED)
    if path.suffix != ".jsonl" or not path.is_absolute():
        return None
    if test_time and name in BENCHMARKS:
        return ["benchmarks", name, "--problems-only", f"--out={path.parent}"]
    if not test_time and name in TRAINING_SETS and TRAINING_SETS[name].hub:
        supervised = [f"--supervised={path}"] if path.stem != name else []
        return ["prepare", name, "--keep", f"--out={path.with_name(f'{name}.jsonl')}", *supervised]
    return None


def benchmark_words(names: Sequence[str]) -> list[str]:
    """`restrain data` words that copy the evaluation's benchmarks."""
    return ["benchmarks", ",".join(names), f"--out={BENCHMARKS_IN_POD}"]


def copy_lines(objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Commands that copy files through each bare pod among these: to the work volume and back, and the pod's end."""
    for metadata in (each["metadata"] for each in objects if each["kind"] == "Pod"):
        space, pod = metadata["namespace"], metadata["name"]
        yield f"kubectl -n {space} wait --for=condition=Ready --timeout=10m pod/{pod}"
        yield f"kubectl -n {space} exec {pod} -- mkdir -p {BENCHMARKS_IN_POD}"
        yield f"kubectl -n {space} cp FILE {pod}:/mnt/work/data/FILE"
        yield f"kubectl -n {space} cp {pod}:/mnt/work/runs/NAME NAME"
        yield f"kubectl -n {space} delete pod {pod}"
