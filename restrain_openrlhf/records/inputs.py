"""What a run is made from: digests of its model, data and reference, and the refusal of inputs that have changed."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import file_digest, file_digests, hub_commit, model_digests, model_folder
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.method import build
from restrain_openrlhf.reference.prompts import PromptSource, all_rows, count_labelled

MODEL = "actor.model_name_or_path"
# Flags that name data, each with the flag that names the split of a hub data set.
DATA = {"data.prompt_dataset": "data.prompt_split", "eval.dataset": "eval.split"}
EXTRACTOR, GOLD_ANSWERS = "answer extractor", "gold answers"
# The record beside the checkpoints of a run that OpenRLHF's own command trains, which has no run.json.
RECORD = "contents.json"
# The folder of the policy's checkpoints in OpenRLHF's ckpt.path, and the file that names the last whole one.
ACTOR, LATEST = "_actor", "latest"


@dataclass(frozen=True)
class Content:
    """One input of a run: where it is, and its digest (`sha256:…` of a file, `commit:…` of a model of the hub)."""

    place: str
    digest: str


def contents(config: HookConfig, flags: Mapping[str, Any]) -> dict[str, Content]:
    """The inputs of a run: the model's files, the data, the reference, the user's agent, the version of the extractor.

    Where some prompts are trained on their gold answers, also how many.

    The keys are names in a configuration, and MODEL/file for the files of a model. Raises ConfigError for a missing
    model, DataError for data that cannot be read or downloaded.
    """
    kind, reference, agent = config.answers, config.reference, config.agent
    found = {EXTRACTOR: Content("this restrain-openrlhf", f"version {kind.whole_version}")}
    found |= _model(str(flags[MODEL])) if flags.get(MODEL) else {}
    found |= {name: _data(name, flags, kind) for name in DATA if flags.get(name)}
    if reference is not None and reference.exists():
        found["reference"] = Content(str(reference), f"sha256:{file_digest(reference)}")
    if build(config.method).on_gold is not None:
        found[GOLD_ANSWERS] = _gold_answers(flags, kind)
    if agent is not None:
        found["agent"] = Content(str(agent.path), agent.identity)
    return found


def _gold_answers(flags: Mapping[str, Any], kind: AnswerKind) -> Content:
    """How many prompts have a gold answer; `flags` has those that were stated."""
    path, limit = str(flags["data.prompt_dataset"]), flags.get("data.max_samples")
    source = PromptSource(path, split=str(flags.get(DATA["data.prompt_dataset"]) or "train"))
    source = source if limit is None else replace(source, max_samples=limit)
    return Content(path, "{} of {} prompts".format(*count_labelled(source, flags["data.label_key"], kind)))


def _model(model: str) -> dict[str, Content]:
    folder = model_folder(model)
    if folder is None:
        return {MODEL: Content(model, f"commit:{hub_commit(model)}")}
    files = model_digests(folder)
    return {f"{MODEL}/{name}": Content(str(folder / name), f"sha256:{digest}") for name, digest in files.items()}


def _data(name: str, flags: Mapping[str, Any], kind: AnswerKind) -> Content:
    path = Path(str(flags[name]))
    if path.is_file():
        return Content(str(path), f"sha256:{file_digest(path)}")
    if path.is_dir():
        inside = file_digests(sorted(each for each in path.rglob("*") if each.is_file()))
        lines = (f"{digest}  {each.relative_to(path)}\n" for each, digest in inside.items())
        return Content(str(path), f"files:{hashlib.sha256(''.join(lines).encode()).hexdigest()}")
    return Content(str(path), f"rows:{_of_rows(name, flags, kind)}")


def _of_rows(name: str, flags: Mapping[str, Any], kind: AnswerKind) -> str:
    """The digest of what is read of a hub data set, or of several in order; the kind's gold only for evaluation."""
    columns = (str(flags.get("data.input_key") or "input"), str(flags.get("data.label_key") or ""))
    digest = hashlib.sha256()
    for dataset in str(flags[name]).split(","):
        source = PromptSource(dataset.strip(), split=str(flags.get(DATA[name]) or "train"))
        for _, row in all_rows(source):
            read = [row.get(column) for column in columns]
            if own := kind.own_columns(row, graded=name == "eval.dataset"):
                read.append(sorted(own.items()))
            digest.update(json.dumps(read, ensure_ascii=False, default=str).encode() + b"\n")
    return digest.hexdigest()


def digests(found: Mapping[str, Content]) -> dict[str, str]:
    """The digests by name, which is what is recorded."""
    return {name: content.digest for name, content in found.items()}


def refuse_changed(where: Path, before: Mapping[str, str], now: Mapping[str, Content]) -> None:
    """Raises RunError naming each input that changed: where it is, and its old and new digest."""
    names = sorted({name for name, _ in before.items() ^ digests(now).items()})
    changed = [_change(name, before.get(name), now.get(name)) for name in names]
    if changed:
        raise RunError(
            f"{where} holds a run that was made from different inputs:\n"
            + "\n".join(f"- {each}" for each in changed)
            + "\nRestore those inputs, or choose another run_dir for a new run."
        )


def _change(name: str, before: str | None, now: Content | None) -> str:
    is_now = f"is {now.digest} now ({now.place})" if now is not None else "is not there now"
    return f"{name} was {before} and {is_now}" if before is not None else f"{name} was not there and {is_now}"


def claim_checkpoints(config: HookConfig, flags: Mapping[str, Any]) -> None:
    """Record the inputs of this run beside the checkpoints that OpenRLHF's own command writes or resumes from.

    Raises RunError if it would resume from checkpoints of a run with other inputs.
    """
    folder = Path(flags["ckpt.path"])
    resumes = flags["ckpt.load_enable"] and (folder / ACTOR / LATEST).exists()
    if not (resumes or flags["ckpt.save_steps"] > 0):
        return
    now = contents(config, flags)
    record = folder / RECORD
    if resumes and record.exists():
        refuse_changed(folder, json.loads(record.read_text(encoding="utf-8")), now)
    elif resumes:
        print(
            f"{folder}: these checkpoints have no {RECORD}, so that nobody can tell whether the model, prompts and "
            "reference are unchanged. Continue only if you know that they are.",
            file=sys.stderr,
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(record, json.dumps(digests(now), indent=2) + "\n")
