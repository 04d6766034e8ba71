"""An evaluation in the files that lm-evaluation-harness (0.4.13) writes with --log_samples, for their readers."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from restrain_openrlhf.data.jsonl import read_rows, write_rows
from restrain_openrlhf.data.outputs import whole_file
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.evaluation.grade import GradeRow
from restrain_openrlhf.evaluation.problems import Problem
from restrain_openrlhf.evaluation.protocol import END_MARKS, TEMPLATES
from restrain_openrlhf.evaluation.responses import BenchmarkFolder, EvaluationProvenance, ResponseRow
from restrain_openrlhf.evaluation.result import Result, load_result

FOLDER = "lm-eval"
FORMATS = (FOLDER,)
FILTER = "restrain-extract"
METRIC = "exact_match"
# What their filters put where no answer is found.
NO_ANSWER = "[invalid]"


class Sample(BaseModel):
    """A line of samples_TASK_DATE.jsonl: one problem. Fields as in their result_schema.py (`SampleResult`).

    `exact_match` is the share of right responses, so that its mean is pass@1.
    """

    model_config = ConfigDict(frozen=True)

    doc_id: int
    doc: Mapping[str, str]
    target: str
    arguments: Mapping[str, Mapping[str, Any]]
    resps: Sequence[Sequence[str]]
    filtered_resps: Sequence[str] | Sequence[Sequence[str]]
    filter: str = FILTER
    metrics: Sequence[str] = (METRIC,)
    doc_hash: str
    prompt_hash: str
    target_hash: str
    exact_match: float


def check_format(name: str) -> None:
    """Raises ConfigError for a format that there is not."""
    if name not in FORMATS:
        raise ConfigError(f"--export {name!r}: is no format. Known: {', '.join(FORMATS)}.")


def export(folders: Sequence[BenchmarkFolder], out: Path) -> list[Path]:
    """Write OUT/MODEL/samples_TASK_DATE.jsonl of each graded benchmark, and results_DATE.json; returns their paths.

    Raises RunError where a result is missing.
    """
    results = [load_result(folder) for folder in folders]
    # Their names have the time as its ISO form, without colons.
    date = datetime.now().isoformat(timespec="microseconds").replace(":", "-")
    model = _sanitized(results[0].provenance.model)
    samples = {folder.path.name: _samples(folder) for folder in folders}
    paths = []
    for task, rows in samples.items():
        paths.append(out / model / f"samples_{task}_{date}.jsonl")
        write_rows(paths[-1], rows)
    paths.append(out / model / f"results_{date}.json")
    with whole_file(paths[-1]) as file:
        file.write(json.dumps(_results(results, samples), indent=2, ensure_ascii=False) + "\n")
    return paths


def _sanitized(model: str) -> str:
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def _samples(folder: BenchmarkFolder) -> list[Sample]:
    """One per problem, in the problems' order."""
    provenance, responses = folder.all_responses()
    problems = read_rows(folder.problems, Problem)
    grades = {row.id: row for row in read_rows(folder.grades, GradeRow)}
    arguments = _generation(provenance)
    return [
        _sample(place, problem, row, grades[problem.id], arguments)
        for place, (problem, row) in enumerate(zip(problems, responses, strict=True))
    ]


def _sample(place: int, problem: Problem, row: ResponseRow, grades: GradeRow, generation: Mapping[str, Any]) -> Sample:
    doc = problem.model_dump()
    answers = [NO_ANSWER if answer is None else answer for answer in grades.answers]
    return Sample(
        doc_id=place,
        doc=doc,
        target=problem.answer,
        arguments={"gen_args_0": {"arg_0": row.prompt, "arg_1": generation}},
        resps=[row.responses],
        filtered_resps=answers if len(answers) == 1 else [answers],
        doc_hash=_hash(json.dumps(doc, indent=2, ensure_ascii=False)),
        prompt_hash=_hash(row.prompt),
        target_hash=_hash(problem.answer),
        exact_match=sum(grades.correct) / len(grades.correct),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _generation(how: EvaluationProvenance) -> dict[str, Any]:
    template = TEMPLATES.get(how.template)
    return {
        "until": [*END_MARKS, *(template.stops if template else ())],
        "do_sample": how.temperature > 0,
        "temperature": how.temperature,
        "top_p": how.top_p,
        "max_gen_toks": how.max_new_tokens,
    }


def _results(results: Sequence[Result], samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """results_DATE.json, without what says how their own program ran (its version, batch sizes, time)."""
    of = {result.provenance.benchmark: result for result in results}
    how = results[0].provenance
    return {
        "results": {task: _numbers(task, rows) for task, rows in samples.items()},
        "group_subtasks": {},
        "configs": {task: _config(result.provenance) for task, result in of.items()},
        "versions": {task: result.grader_version for task, result in of.items()},
        "n-shot": {task: result.provenance.shots for task, result in of.items()},
        "higher_is_better": {task: {METRIC: True} for task in samples},
        "n-samples": {task: {"original": len(rows), "effective": len(rows)} for task, rows in samples.items()},
        "config": {
            "model": "vllm",
            "model_args": {"pretrained": how.model, "max_model_len": how.context},
            "gen_kwargs": _generation(how),
            "random_seed": how.seed,
        },
        "date": datetime.now().timestamp(),
        "task_hashes": {
            task: _hash("".join(row.doc_hash + row.prompt_hash + row.target_hash for row in rows))
            for task, rows in samples.items()
        },
        "model_source": "vllm",
        "model_name": how.model,
        "model_name_sanitized": _sanitized(how.model),
        "system_instruction": None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": None,
        "chat_template": None,
        "chat_template_sha": None,
    }


def _numbers(task: str, rows: Sequence[Sample]) -> dict[str, Any]:
    values = [row.exact_match for row in rows]
    return {
        "name": task,
        "alias": task,
        "sample_len": len(rows),
        f"{METRIC},{FILTER}": float(np.mean(values)),
        f"{METRIC}_stderr,{FILTER}": float(np.std(values, ddof=1) / len(rows) ** 0.5) if len(rows) > 1 else "N/A",
    }


def _config(how: EvaluationProvenance) -> dict[str, Any]:
    return {
        "task": how.benchmark,
        "task_alias": how.title,
        "dataset_path": how.source,
        "output_type": "generate_until",
        "doc_to_target": "{{answer}}",
        "num_fewshot": how.shots,
        "metric_list": [{"metric": METRIC, "aggregation": "mean", "higher_is_better": True}],
        "generation_kwargs": _generation(how),
        "repeats": how.n,
        "filter_list": [{"name": FILTER, "filter": [{"function": "restrain_openrlhf.answers.extract"}]}],
        "metadata": {"template": how.template, "protocol": how.protocol, "problems_digest": how.problems_digest},
    }
