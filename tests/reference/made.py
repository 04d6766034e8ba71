"""Reference artifacts with answers that a test chooses."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.reference.artifact import ReferenceRow
from restrain_openrlhf.reference.prompts import Prompt
from tests.reference.toy import provenance


def write_reference(path: Path, answers: Mapping[str, Sequence[str | None]], **made: object) -> Path:
    """A complete artifact: each problem's answers (None: missing), equally many; `made` is other provenance."""
    prompts = [Prompt(None, problem, problem, "here") for problem in answers]
    write_rows(path, (ReferenceRow.of_answers(prompt, answers[prompt.problem]) for prompt in prompts))
    provenance(prompts, n=len(next(iter(answers.values()))), **made).write(path)
    return path
