"""What lies beside a run's kept rollouts: gold, the reference's majorities, and notes on both for the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.prompt_gold import PromptGold, gold_for
from restrain_openrlhf.records.folder import RunFolder
from restrain_openrlhf.records.kept import kept_files, read_kept
from restrain_openrlhf.records.kept.groups import arrow
from restrain_openrlhf.reference import load_reference


@dataclass(frozen=True)
class Material:
    """A run to look at. `reference` is the frozen model's majority answer by prompt_id, where the run has one."""

    run: Path
    gold: PromptGold = field(default_factory=PromptGold)
    reference: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def material(run: Path, gold: Path | None) -> Material:
    """What is found for a run. Raises a RestrainError where nothing was kept, or a file cannot be used."""
    if not run.is_dir():
        raise DataError(f"{run}: {'is a file' if run.exists() else 'no such folder'}. Give a run's folder.")
    next(read_kept(run))
    answers, notes = PromptGold(), list[str]()
    if gold:
        prompts = kept_prompts(run)
        answers = gold_for(prompts, gold, RunFolder(run).flags())
        graded = sum(answers.of(prompt) is not None for prompt in prompts)
        notes.append(f"Gold has {graded:,} of {len(prompts):,} prompts.")
    named = RunFolder(run).record().get("reference")
    flipped = "Flipped: a majority answer other than that of the prompt's group before"
    if named is None:
        return Material(run, answers, {}, (*notes, f"{flipped}."))
    if not Path(named).exists():
        gone = f"{flipped}. The run's reference, {named}, is not there to compare with."
        return Material(run, answers, {}, (*notes, gone))
    votes = {row.prompt_hash: row.majority for row in load_reference(Path(named)).rows if row.majority is not None}
    return Material(run, answers, votes, (*notes, f"{flipped}, its first one with the reference's."))


def kept_prompts(run: Path) -> frozenset[str]:
    """The prompts of all steps so far, without reading what was drawn for them."""
    tables = (arrow().parquet.read_table(path, columns=["prompt"]) for path in kept_files(run).values())
    return frozenset(prompt for table in tables for prompt in table["prompt"].unique().to_pylist())
