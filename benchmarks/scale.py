"""What the run and the data cost as prompts and steps grow: time and peak memory of each stage, and their exponents.

    python benchmarks/scale.py                               sizes 10^3 and 10^4, in a minute or two
    python benchmarks/scale.py --sizes 100000,1000000 --rollouts 4 --stages prepare,score
    python benchmarks/scale.py --package DIRECTORY           of another checkout, to compare two side by side

Each stage runs in a process of its own. Seconds are the processor's, all threads together. Memory is that process's
peak resident size; an exponent is the slope between the two largest sizes, with what an idle process needs taken off
memory first.
"""

import argparse
import hashlib
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
from typing import TYPE_CHECKING

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION

if TYPE_CHECKING:
    from restrain_openrlhf.records.kept import KeptGroup

WORDS = (
    *("find", "the", "sum", "of", "all", "positive", "integers", "x", "such", "that", "let", "be", "a", "number"),
    *("and", "how", "many", "ways", "are", "there", "to"),
)
# A step's row has about as many numbers as a run's of OpenRLHF 0.11.2 with the hook on.
NUMBERS = 60
IDLE = "pass"
STEPS_TIMED = 20
# Kept groups of a step, and prompts that they are of.
KEPT, KEPT_PROMPTS = 250, 10_000
# Says a process's peak at its end. What its parent is told of it may be the parent's own.
PEAK = 'import atexit; atexit.register(lambda: print("\\n" + open("/proc/self/status").read()))'
COMMAND = """
import sys
from restrain_openrlhf.commands.main import main
sys.argv = ["restrain", *{!r}.split()]
main()
"""
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
from restrain_openrlhf.evaluation.figures import load_curves, save_run_figures
save_run_figures([load_curves(Path("metrics.jsonl").parent)], Path("plots"))
""",
    "load the reference": """
from restrain_openrlhf.reference import load_reference
load_reference(Path("ref.jsonl")).row(PROMPT)
""",
    "prompts not in the reference": """
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import refuse_missing
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
refuse_missing(load_reference(Path("ref.jsonl")), load_prompts(PromptSource("prompts.jsonl", "problem")))
""",
    "merge": """
from restrain_openrlhf.reference.offline_pass import merge
merge([Path("ref.jsonl")], Path("merged.jsonl"))
""",
    "subset": """
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.offline_pass import subset
subset(load_reference(Path("ref.jsonl")), Path("subset.jsonl"), ROLLOUTS // 2)
""",
    "read a run's prompts": """
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts
load_prompts(PromptSource("prompts.jsonl", input_key="problem"))
""",
    "prepare": COMMAND.format("data prepare own --source prompts.jsonl --answer-column answer --out train.jsonl"),
    "score": COMMAND.format("score rollouts.jsonl --out scores.jsonl"),
    "premise of a reference": COMMAND.format("premise --reference ref.jsonl --gold gold.jsonl --json"),
    "premise of rollouts": COMMAND.format("premise --rollouts rollouts.jsonl --json"),
    "analyze": COMMAND.format("analyze kept --gold gold.jsonl --json"),
    "view": COMMAND.format("view kept --out page.html"),
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


def problem(place: int, words: int) -> str:
    """A prompt of a few words more than `words`; no two are equal."""
    drawn = random.Random(place)
    return f"Problem {place}: " + " ".join(drawn.choices(WORDS, k=words)) + f" {place}?"


@dataclass(frozen=True)
class Inputs:
    """The files of a size; made without the package, but for kept rollouts. Words are those of a prompt."""

    size: int
    rollouts: int
    words: int

    def problem(self, place: int) -> str:
        """That of a prompt."""
        return problem(place, self.words)

    def write(self, folder: Path, code: str) -> None:
        """Those that the code names."""
        (folder / "evaluation").mkdir()
        prompts = range(self.size)
        files: dict[str, Iterable[dict[str, object]]] = {
            "prompts.jsonl": ({"id": i, "problem": self.problem(i), "answer": "12"} for i in prompts),
            "gold.jsonl": ({"problem": self.problem(i), "answer": "12"} for i in prompts),
            "rollouts.jsonl": map(self._group, prompts),
            "metrics.jsonl": map(_step, range(1, self.size + 1)),
            "ref.jsonl": map(self._reference_row, prompts),
            "evaluation/problems.jsonl": ({"id": str(i), "problem": self.problem(i), "answer": "12"} for i in prompts),
            "evaluation/responses.jsonl": map(self._response, prompts),
        }
        for name, rows in files.items():
            if name in code or (name.startswith("evaluation") and "evaluation" in code):
                with (folder / name).open("w") as file:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for name, made in (("ref.jsonl", self._provenance()), ("evaluation/responses.jsonl", self._evaluation())):
            (folder / f"{name}.provenance.json").write_text(json.dumps(made))
        if "kept" in code:
            self._keep(folder / "kept")

    def _texts(self, place: int) -> list[str]:
        drawn = random.Random(place)
        begun = "so we add and get " * 5
        return [f"{begun}the answer is \\boxed{{{drawn.randrange(10, 14)}}}" for _ in range(self.rollouts)]

    def _group(self, place: int) -> dict[str, object]:
        return {"id": place, "problem": self.problem(place), "responses": self._texts(place), "answer": "12"}

    def _response(self, place: int) -> dict[str, object]:
        lists = {"tokens": [30] * self.rollouts, "truncated": [False] * self.rollouts}
        text = self.problem(place)
        return {"id": str(place), "problem": text, "prompt": text, "responses": self._texts(place), **lists}

    def _reference_row(self, place: int) -> dict[str, object]:
        digest = hashlib.sha256(self.problem(place).encode()).hexdigest()
        most = self.rollouts - place % (self.rollouts // 2)
        counts = [count for count in (most, self.rollouts - most) if count]
        answers = ["12"] * most + ["13"] * (self.rollouts - most)
        hashes = {"id": place, "prompt_hash": digest, "problem_hash": digest}
        labels = {"classes": [0] * most + [1] * (self.rollouts - most), "keys": ["12", "13"][: len(counts)]}
        vote = {"counts": counts, "majority": "12", "majority_count": most, "majority_share": most / self.rollouts}
        of = {"n": self.rollouts, "answers": answers, "missing_share": 0.0, "unread": []}
        return {**hashes, **of, **labels, **vote}

    def _provenance(self) -> dict[str, object]:
        drawn = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40, "max_len": 64, "seed": 1}
        of = {"model": "m", "model_fingerprint": "f", "template": "none", "prompt_set_hash": "h"}
        made = {"extractor_version": EXTRACTOR_VERSION, "restrain_version": "0"}
        return {**of, "prompt_count": self.size, "n": self.rollouts, **drawn, **made}

    def _evaluation(self) -> dict[str, object]:
        of = {"benchmark": "own", "title": "own", "source": "here", "problems_digest": "d", "problems": self.size}
        how = {"model": "m", "model_fingerprint": "f", "template": "plain", "template_digest": "t"}
        drawn = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40, "seed": 1}
        return {**of, **how, "protocol": "paper", "n": self.rollouts, **drawn, "context": 64}

    def _keep(self, run: Path) -> None:
        """Steps of KEPT groups whose prompts come again."""
        from restrain_openrlhf.records.kept import as_parquet, write_step

        for step in range(1, self.size // KEPT + 1):
            groups = [self._kept_group(step, place) for place in range(KEPT)]
            write_step(run, step, as_parquet(groups))

    def _kept_group(self, step: int, place: int) -> "KeptGroup":
        from restrain_openrlhf.records.kept import KeptGroup, KeptRollout

        of = ((step - 1) * KEPT + place) % KEPT_PROMPTS
        rollouts = tuple(
            KeptRollout(at, text, True, text[-3:-1], None, None, None, True, text[-3:-1], 0.5, 0.0)
            for at, text in enumerate(self._texts(step * KEPT + place))
        )
        digest = hashlib.sha256(self.problem(of).encode()).hexdigest()
        return KeptGroup(step, place, digest, self.problem(of), 0, self.rollouts, 1.0, False, rollouts)


def _step(step: int) -> dict[str, object]:
    names = ("majority_share_mean", "low_consensus_share", "unanimous_share", "effective_labels_mean")
    shares = dict.fromkeys((*names, "missing_share_of_voters", "top_answer_share"), 0.25)
    numbers = {f"restrain/number_{i}": step / (i + 3) for i in range(NUMBERS)}
    votes = {**shares, "prompts": 256, "voters": 4096, "majority_histogram": [16] * 16 + [0]}
    return {"step": step, **numbers, "restrain/kl": 1 / step, "votes": votes}


def run_stage(name: str, folder: Path, of: Inputs, package: Path) -> Cost:
    """The stage in a process of its own. Raises where it fails."""
    values = f"SIZE, ROLLOUTS, PROMPT = {of.size}, {of.rollouts}, {of.problem(of.size // 2)!r}"
    code = f"{PEAK}\nfrom pathlib import Path\n{values}\n{STAGES[name]}"
    environment = {**os.environ, "PYTHONPATH": str(package)}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        said = log.read()
    if process.returncode:
        raise RuntimeError(f"{name} at {of.size}: status {process.returncode}\n{said[-2000:]}")
    told = dict(line.split()[:2] for line in said.splitlines() if line.startswith(("SECONDS", "VmHWM:")))
    own = told.get("SECONDS")
    return Cost(usage.ru_utime + usage.ru_stime if own is None else float(own), int(told["VmHWM:"]) * 1024 / 1e6)


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
    parser.add_argument("--rollouts", type=int, default=16, help="of each prompt")
    parser.add_argument("--words", type=int, default=40, help="of each prompt")
    parser.add_argument("--stages", default="", help=f"comma-separated, of: {', '.join(STAGES)}")
    parser.add_argument("--package", type=Path, default=Path(__file__).parents[1], help="the checkout to measure")
    given = parser.parse_args()
    sizes = sorted(map(int, given.sizes.split(",")))
    asked = [name for name in STAGES if name == "idle" or not given.stages or name in given.stages.split(",")]
    costs: dict[str, list[Cost]] = {name: [] for name in asked}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            inputs = Inputs(size, given.rollouts, given.words)
            inputs.write(Path(folder), "".join(map(STAGES.__getitem__, asked)))
            for name in asked:
                costs[name].append(run_stage(name, Path(folder), inputs, given.package.resolve()))
                print(f"{name} at {size}: {costs[name][-1]}", file=sys.stderr, flush=True)
    idle = max(each.megabytes for each in costs.pop("idle"))
    print(f"| stage | seconds at {sizes[-1]:,} | exponent | MB at {sizes[-1]:,} | exponent |\n|---|---|---|---|---|")
    for name, found in costs.items():
        seconds, megabytes = [each.seconds for each in found], [each.megabytes for each in found]
        slopes = exponent(sizes, seconds), exponent(sizes, megabytes, idle)
        print(f"| {name} | {seconds[-1]:.3g} | {slopes[0]} | {megabytes[-1]:.0f} | {slopes[1]} |")


if __name__ == "__main__":
    main()
