"""What the run and the data cost as prompts and steps grow: time and peak memory of each stage, and their exponents.

    python benchmarks/scale.py                               sizes 10^3 and 10^4, in a minute or two
    python benchmarks/scale.py --sizes 1000,10000,100000,1000000 --stages overlap,score
    python benchmarks/scale.py --package DIRECTORY           of another checkout, to compare two side by side

Each stage runs in a process of its own. Seconds are the processor's, all threads together. Memory is that process's
peak resident size; an exponent is the slope between the two largest sizes, with what an idle process needs taken off
memory first.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROLLOUTS = 16
WORDS = (
    *("find", "the", "sum", "of", "all", "positive", "integers", "x", "such", "that", "let", "be", "a", "number"),
    *("and", "how", "many", "ways", "are", "there", "to"),
)
# A step's row has about as many numbers as a run's of OpenRLHF 0.11.2 with the hook on.
NUMBERS = 60
IDLE = "pass"
STEPS_TIMED = 20
STAGES = {
    "idle": IDLE,
    "append a step to metrics.jsonl": f"""
import shutil
import time
from restrain_openrlhf.records.metrics import append_row
path, row = Path(shutil.copy("metrics.jsonl", "long.jsonl")), {{f"m{{i}}": 0.5 for i in range({NUMBERS})}}
start = time.process_time()
for step in range(SIZE + 1, SIZE + 1 + {STEPS_TIMED}):
    append_row(path, step, {{**row, "votes": {{}}}})
print("SECONDS", (time.process_time() - start) / {STEPS_TIMED})
""",
    "plot": """
from restrain_openrlhf.evaluation.figures.curves import load_curves, save_run_figures
save_run_figures([load_curves(Path("metrics.jsonl").parent)], Path("plots"))
""",
    "load the reference": """
from restrain_openrlhf.reference import load_reference
load_reference(Path("ref.jsonl")).row(PROMPT)
""",
    "load it in the second process": """
from restrain_openrlhf.reference import load_reference
load_reference(Path("ref.jsonl"))
import time
start = time.process_time()
reference = load_reference(Path("ref.jsonl"))
assert reference.row(PROMPT).n == 16
print("SECONDS", time.process_time() - start)
""",
    "prompts not in the reference": """
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.checks import refuse_missing
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
refuse_missing(load_reference(Path("ref.jsonl")), load_prompts(PromptSource("prompts.jsonl", "problem")))
""",
    "merge": """
from restrain_openrlhf.reference.artifact import merge
merge([Path("ref.jsonl")], Path("merged.jsonl"))
""",
    "subset": """
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import subset
subset(load_reference(Path("ref.jsonl")), Path("subset.jsonl"), 8)
""",
    "overlap": """
from restrain_openrlhf.commands.main import main
import sys
sys.argv = ["restrain", "data", "overlap", "prompts.jsonl", "--benchmarks", "own=benchmark.jsonl", "--out", "o.jsonl"]
main()
""",
    "prepare": """
from restrain_openrlhf.data.prepare import prepare
from restrain_openrlhf.data.sources import OWN
prepare(OWN, "prompts.jsonl", Path("train.jsonl"))
""",
    "score": """
from restrain_openrlhf.commands.main import main
import sys
sys.argv = ["restrain", "score", "rollouts.jsonl", "--out", "scores.jsonl"]
main()
""",
    "regrade": """
from restrain_openrlhf.evaluation.result import BenchmarkFolder, grade_folder
grade_folder(BenchmarkFolder(Path("evaluation")))
""",
}


@dataclass(frozen=True)
class Cost:
    """Of one stage at one size: seconds of the processor, and MB (10^6 bytes) at the peak."""

    seconds: float
    megabytes: float


def problem(place: int) -> str:
    """A prompt of about 40 words; no two are equal."""
    drawn = random.Random(place)
    return f"Problem {place}: " + " ".join(drawn.choice(WORDS) for _ in range(40)) + f" {place}?"


def write_inputs(folder: Path, size: int, code: str) -> None:
    """The files that the code names, by nothing of the package but what tells a reference's extractor."""
    (folder / "evaluation").mkdir()
    evaluated = ({"id": str(i), "problem": problem(i), "answer": "12"} for i in range(size))
    files = {
        "prompts.jsonl": ({"id": i, "problem": problem(i)} for i in range(size)),
        "benchmark.jsonl": ({"id": i, "problem": problem(i * 7), "answer": "1"} for i in range(1000)),
        "rollouts.jsonl": map(_rollouts, range(size)),
        "metrics.jsonl": map(_step, range(1, size + 1)),
        "ref.jsonl": map(_reference_row, range(size)),
        "evaluation/problems.jsonl": evaluated,
        "evaluation/responses.jsonl": map(_response, range(size)),
    }
    for name, rows in files.items():
        if name in code or Path(name).parts[0] in code:
            _write(folder / name, rows)
    for name, made in (("ref.jsonl", _provenance(size)), ("evaluation/responses.jsonl", _evaluation(size))):
        (folder / f"{name}.provenance.json").write_text(json.dumps(made))


def _write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _texts(place: int) -> list[str]:
    drawn = random.Random(place)
    return [f"{'so we add and get ' * 5}the answer is \\boxed{{{drawn.randrange(10, 14)}}}" for _ in range(ROLLOUTS)]


def _rollouts(place: int) -> dict[str, object]:
    return {"id": place, "problem": problem(place), "responses": _texts(place)}


def _response(place: int) -> dict[str, object]:
    lists = {"tokens": [30] * ROLLOUTS, "truncated": [False] * ROLLOUTS}
    return {"id": str(place), "problem": problem(place), "prompt": problem(place), "responses": _texts(place), **lists}


def _step(step: int) -> dict[str, object]:
    names = ("majority_share_mean", "low_consensus_share", "unanimous_share", "effective_labels_mean")
    shares = dict.fromkeys((*names, "missing_share_of_voters", "top_answer_share"), 0.25)
    numbers = {f"restrain/number_{i}": step / (i + 3) for i in range(NUMBERS)}
    votes = {**shares, "prompts": 256, "voters": 4096, "majority_histogram": [16] * 16 + [0]}
    return {"step": step, **numbers, "restrain/kl": 1 / step, "votes": votes}


def _reference_row(place: int) -> dict[str, object]:
    import hashlib

    digest = hashlib.sha256(problem(place).encode()).hexdigest()
    answers = ["12"] * (9 + place % 8) + ["13"] * (7 - place % 8)
    counts = [count for count in (9 + place % 8, 7 - place % 8) if count]
    hashes = {"id": place, "prompt_hash": digest, "problem_hash": digest}
    vote = {"counts": counts, "majority": "12", "majority_count": counts[0], "majority_share": counts[0] / ROLLOUTS}
    return {**hashes, "n": ROLLOUTS, "answers": answers, **vote, "missing_share": 0.0, "unread": []}


def _provenance(size: int) -> dict[str, object]:
    from restrain_openrlhf.answers import MATHEMATICS

    drawn = {"n": ROLLOUTS, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40, "max_len": 64, "seed": 1}
    made = {"model": "m", "model_fingerprint": "f", "template": "none", "prompt_set_hash": "h", "prompt_count": size}
    return {**made, **drawn, "extractor_version": MATHEMATICS.version, "restrain_version": "0"}


def _evaluation(size: int) -> dict[str, object]:
    of = {"benchmark": "own", "title": "own", "source": "here", "problems_digest": "d", "problems": size}
    how = {"model": "m", "model_fingerprint": "f", "template": "plain", "template_digest": "t", "shots": 0}
    drawn = {"protocol": "paper", "n": ROLLOUTS, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40, "seed": 1}
    return {**of, **how, **drawn, "context": 64, "labels": {}}


def run_stage(name: str, folder: Path, size: int, package: Path) -> Cost:
    """The stage in a process of its own, with a cache of the folder's own. Raises where it fails."""
    code = f"from pathlib import Path\nSIZE, PROMPT = {size}, {problem(size // 2)!r}\n{STAGES[name]}"
    environment = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(folder / "cache")}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        said = log.read()
    if process.returncode:
        raise RuntimeError(f"{name} at {size}: status {process.returncode}\n{said[-2000:]}")
    own = [float(line.split()[1]) for line in said.splitlines() if line.startswith("SECONDS")]
    return Cost(own[0] if own else usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def exponent(sizes: list[int], values: list[float], floor: float = 0.0) -> str:
    """The slope of the logarithms between the two largest sizes; – where the stage is not above the floor there."""
    if len(sizes) < 2 or min(values[-2:]) <= 1.02 * floor:
        return "–"
    ratio = (values[-1] - floor) / (values[-2] - floor)
    return f"{math.log(ratio) / math.log(sizes[-1] / sizes[-2]):.2f}"


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000", help="numbers of prompts and of steps")
    parser.add_argument("--stages", default="", help=f"comma-separated, of: {', '.join(STAGES)}")
    parser.add_argument("--package", type=Path, default=Path(__file__).parents[1], help="the checkout to measure")
    given = parser.parse_args()
    sizes = sorted(map(int, given.sizes.split(",")))
    asked = [name for name in STAGES if name == "idle" or not given.stages or name in given.stages.split(",")]
    costs: dict[str, list[Cost]] = {name: [] for name in asked}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(Path(folder), size, "".join(map(STAGES.__getitem__, asked)))
            for name in asked:
                costs[name].append(run_stage(name, Path(folder), size, given.package.resolve()))
                print(f"{name} at {size}: {costs[name][-1]}", file=sys.stderr, flush=True)
    idle = max(each.megabytes for each in costs.pop("idle"))
    print(f"| stage | seconds at {sizes[-1]:,} | exponent | MB at {sizes[-1]:,} | exponent |\n|---|---|---|---|---|")
    for name, found in costs.items():
        seconds, megabytes = [each.seconds for each in found], [each.megabytes for each in found]
        slopes = exponent(sizes, seconds), exponent(sizes, megabytes, idle)
        print(f"| {name} | {seconds[-1]:.3g} | {slopes[0]} | {megabytes[-1]:.0f} | {slopes[1]} |")


if __name__ == "__main__":
    main()
