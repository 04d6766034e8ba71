"""Gold for kept prompts, joined by the hash of the prompt, or of its problem where the run put it into a template."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.data.gold_split import load_gold
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.prompts import Prompt, PromptSource, load_prompts
from restrain_openrlhf.run.folder import RunFolder


def gold_by_prompt(run: Path, gold: Path) -> Mapping[str, str]:
    """Gold answers by `prompt_id`, for any prompt that the run could have kept.

    `gold` has rows {problem, answer} or {prompt_hash, answer}. Raises DataError where it, or the run's own file of
    prompts, cannot be read.
    """
    answers = load_gold(gold)
    hashes = ((text_hash(prompt.text), text_hash(prompt.problem)) for prompt in _templated(run))
    return answers | {text: answers[problem] for text, problem in hashes if problem in answers}


def _templated(run: Path) -> Iterable[Prompt]:
    """The run's prompts where a template makes them other texts than their problems; else none."""
    flags = _flags(RunFolder(run).resolved)
    source = PromptSource(
        dataset=flags.get("data.prompt_dataset", ""),
        input_key=flags.get("data.input_key", PromptSource.input_key),
        input_template=flags.get("data.input_template"),
        apply_chat_template=bool(flags.get("data.apply_chat_template")),
        split=flags.get("data.prompt_split", PromptSource.split),
    )
    if not (source.input_template or source.apply_chat_template):
        return []
    return load_prompts(source, _tokenizer(flags) if source.apply_chat_template else None)


def _flags(resolved: Path) -> Mapping[str, Any]:
    """OpenRLHF's flags of a run by `restrain train`; none of a run that was started otherwise."""
    if not resolved.exists():
        return {}
    try:
        flags: Mapping[str, Any] = json.loads(resolved.read_text(encoding="utf-8"))["openrlhf"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{resolved}: is not as `restrain train` writes it. Give the folder of a run.") from None
    return flags


def _tokenizer(flags: Mapping[str, Any]) -> Any:
    from restrain_openrlhf.hook.preflight import load_tokenizer  # noqa: PLC0415 - imports the training stack

    return load_tokenizer(flags["actor.model_name_or_path"])
