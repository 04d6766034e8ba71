"""What a view is made of: a run's folder, gold answers, the reference's votes, and notes on them for the reader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.kept import kept_files, read_kept
from restrain_openrlhf.kept.gold import Gold, gold_for
from restrain_openrlhf.kept.schema import arrow
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.run.folder import RunFolder


@dataclass(frozen=True)
class Material:
    """A run to look at. `reference` is the frozen model's majority answer by prompt_id, where the run has one."""

    run: Path
    gold: Gold = field(default_factory=Gold)
    reference: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run's, as the page shows it."""
        return self.run.resolve().name


def material(run: Path, gold: Path | None) -> Material:
    """What is found for a run. Raises a RestrainError where nothing was kept, or a file cannot be used."""
    if not run.is_dir():
        raise DataError(f"{run}: {'is a file' if run.exists() else 'no such folder'}. Give a run's folder.")
    next(read_kept(run))
    prompts = kept_prompts(run) if gold else frozenset()
    answers = gold_for(prompts, gold, RunFolder(run).flags()) if gold else Gold()
    graded = [_graded(answers, prompts)] if gold else []
    path = reference_path(run)
    if path is None or not path.exists():
        return Material(run, answers, {}, (*graded, _no_reference(path)))
    return Material(run, answers, reference_votes(path), (*graded, f"{FLIPPED}, its first one with the reference's."))


FLIPPED = "Flipped: a majority answer other than that of the prompt's group before"


def _no_reference(path: Path | None) -> str:
    return f"{FLIPPED}." if path is None else f"{FLIPPED}. The run's reference, {path}, is not there to compare with."


def _graded(gold: Gold, prompts: frozenset[str]) -> str:
    return f"Gold has {sum(gold.of(prompt) is not None for prompt in prompts):,} of {len(prompts):,} prompts."


def kept_prompts(run: Path) -> frozenset[str]:
    """The prompts of all steps so far, without reading what was drawn for them."""
    tables = (arrow().parquet.read_table(path, columns=["prompt"]) for path in kept_files(run).values())
    return frozenset(prompt for table in tables for prompt in table["prompt"].unique().to_pylist())


def reference_path(run: Path) -> Path | None:
    """The file of the run's offline pass; None where it has none, or nothing says how it was started."""
    named = RunFolder(run).said().get("reference")
    return Path(named) if named else None


def reference_votes(path: Path) -> dict[str, str]:
    """The frozen model's majority answer by the hash of the prompt, where it has one."""
    return {row.prompt_hash: row.majority for row in load_reference(path).rows if row.majority is not None}
