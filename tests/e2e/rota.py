"""Which long tests CI runs on a commit: one part of them, chosen by the commit's digest, as far as the time goes."""

import os
import sys
import time
from pathlib import Path

ALL = "all"
# Files whose tests are marked `long`, dealt to parts, each short enough for a slow machine. These two are in each.
EVERY_TIME = frozenset({"e2e/test_demo.py", "e2e/test_resume.py"})
PARTS: dict[str, frozenset[str]] = {
    "1": frozenset({"e2e/test_adapt.py"}),
    "2": frozenset({"e2e/test_gpu_check.py"}),
    "3": frozenset(
        {
            "e2e/test_own_answers.py",
            "e2e/test_wrapped_agent.py",
        }
    ),
    "4": frozenset({"e2e/test_evaluation.py", "e2e/test_lora.py"}),
    "5": frozenset({"e2e/test_methods.py", "e2e/test_single_node.py"}),
    "6": frozenset({"e2e/test_training.py"}),
    "7": frozenset({"hook/test_host_releases.py", "hook/test_trainers_flags.py"}),
    "8": frozenset({"scoring/test_in_their_own_folders.py"}),
    "9": frozenset({"e2e/test_study.py"}),
    "10": frozenset({"e2e/test_tutorials.py"}),
    "11": frozenset({"e2e/test_agent.py"}),
    "12": frozenset({"e2e/test_real_model.py", "test_time/test_real_model.py"}),
}


def part_of(commit: str) -> str:
    """The part for a commit, given by its digest in hexadecimal: a name in PARTS."""
    return sorted(PARTS)[int(commit[:12], 16) % len(PARTS)]


def runs(part: str, file: str) -> bool:
    """Whether a file's long tests run in a part; `file` is relative to tests/. Raises KeyError where no part has it."""
    homes = [name for name, files in PARTS.items() if file in files | EVERY_TIME]
    if not homes:
        raise KeyError(
            f"tests/{file} has tests marked `long` and is in no part of {Path(__file__).name}: add it to one."
        )
    return part == ALL or part in homes


def too_late(file: str) -> bool:
    """Whether a file's long tests may no longer begin: until when is in Unix time. Those of EVERY_TIME always may."""
    return file not in EVERY_TIME and time.time() > float(os.environ.get("LONG_TESTS_UNTIL", "inf"))


if __name__ == "__main__":
    print(part_of(sys.argv[1]))
