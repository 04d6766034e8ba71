"""The runs of a study: each configuration with each seed, in a folder of its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.errors import ConfigError

FIRST_SEED = 42


@dataclass(frozen=True)
class StudyRun:
    """One run. `name` is the configuration's file name, for tables and legends; `group` is that file's folder."""

    name: str
    group: str
    seed: int
    source: Path
    overrides: Mapping[str, object]
    config: RunConfig

    @property
    def label(self) -> str:
        """`group/name seed N`."""
        return f"{self.group}/{self.name} seed {self.seed}"


def plan_study(
    sources: Sequence[Path], seeds: int, out: Path, overrides: Mapping[str, object] | None = None
) -> list[StudyRun]:
    """Every configuration with seeds 42, 43, …; seed by seed, so that a study stopped half-way compares all methods.

    Raises ConfigError for two configurations of one name, or one without a held-out set to compare on.
    """
    _refuse_same_names(sources)
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    return [_run(source, seed, out, overrides or {}) for seed in numbers for source in sources]


def _run(source: Path, seed: int, out: Path, overrides: Mapping[str, object]) -> StudyRun:
    group, name = source.absolute().parent.name, source.stem
    placed = {
        **overrides,
        "run_dir": str(out.absolute() / group / name / f"seed-{seed}"),
        "openrlhf.train.seed": seed,
        "evaluate_first": True,
    }
    config = load_run_config(source, placed)
    for flag in ("eval.dataset", "eval.steps", "data.label_key"):
        if not config.openrlhf.get(flag):
            raise ConfigError(
                f"{source}: openrlhf has no {flag}, and a study compares accuracy on held-out problems. Set "
                "eval.dataset (problems with answers), eval.steps and data.label_key, in the file or with --set."
            )
    return StudyRun(name, group, seed, source, placed, config)


def _refuse_same_names(sources: Sequence[Path]) -> None:
    counts = Counter((source.absolute().parent.name, source.stem) for source in sources)
    (group, name), count = counts.most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} of the configurations are called {group}/{name}, and their runs would share a folder. Give each "
            "once, and rename those that differ."
        )
