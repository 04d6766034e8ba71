"""How prompts and benchmarks come to the work volume: fetched by pods with a way out, or copied by hand."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from restrain_openrlhf.data.catalogue import TRAINING_SETS
from restrain_openrlhf.evaluation.benchmarks import BENCHMARKS

BENCHMARKS_IN_POD = "/mnt/work/data/benchmarks"
SUPERVISED = ".supervised"
NAMED = re.compile(r"(/.+)/([\w-]+)(?:\.(\d+))?(\.supervised)?\.jsonl")


def data_words(prompts: str, test_time: bool) -> list[str] | None:
    """`restrain data` words that make this file, by its name; None where it is a file of the user's own.

    Training reads `dapo14k.jsonl`, `dapo14k.6400.jsonl` (its first prompts) or `dapo14k.supervised.jsonl` (with gold),
    test-time RL a benchmark's problems: `aime24.jsonl`.
    """
    named = NAMED.fullmatch(prompts)
    if named is None:
        return None
    folder, name, first, supervised = named.groups()
    if test_time:
        known = name in BENCHMARKS and not (first or supervised)
        return ["benchmarks", name, "--problems-only", f"--out={folder}"] if known else None
    if name not in TRAINING_SETS or TRAINING_SETS[name].hub is None:
        return None
    cut = [f"--first={first}"] if first else []
    gold = [f"--supervised={prompts}"] if supervised else []
    plain = prompts.replace(SUPERVISED, "") if supervised else prompts
    return ["prepare", name, "--keep", *cut, f"--out={plain}", *gold]


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
