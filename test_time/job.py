"""What a user asked for, and the folder of one adaptation: what lies where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.run.folder import RunFolder
from test_time.problems import Source
from test_time.stopping import StopRules


@dataclass(frozen=True)
class Adaptation:
    """What a user chose. `config` (else a preset by `method`, `protocol` and size) gives method and OpenRLHF's flags.

    `votes`: rollouts of each vote, before and after. `boxed` and `chat`: None leaves it to the configuration. `gold`
    and `heldout` are read for the evaluation, after all else is done. `stop`: None never ends a run early.
    """

    model: str
    problems: Source
    out: Path
    config: Path | None = None
    method: str | None = None
    protocol: str = "paper"
    steps: int | None = None
    epochs: int | None = None
    votes: int = 64
    boxed: bool | None = None
    chat: bool | None = None
    gold: Path | None = None
    heldout: tuple[Source, ...] = ()
    stop: StopRules | None = field(default_factory=StopRules)
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def has_gold(self) -> bool:
        """Whether there will be accuracies: from a gold file, or because the test set is a known benchmark."""
        return self.gold is not None or self.problems.is_benchmark


@dataclass(frozen=True)
class AdaptationFolder:
    """Paths under `--out`."""

    path: Path

    @property
    def problems(self) -> Path:
        """The problems as the policy gets them, before its chat template; no answers."""
        return self.path / "prompts.jsonl"

    @property
    def before(self) -> Path:
        """The base model's votes: the reference of u_x, too."""
        return self.path / "before.jsonl"

    @property
    def after(self) -> Path:
        """The adapted model's votes."""
        return self.path / "after.jsonl"

    @property
    def predictions(self) -> Path:
        """An answer for every problem."""
        return self.path / "predictions.jsonl"

    @property
    def training(self) -> RunFolder:
        """The training run: metrics.jsonl, checkpoints, TensorBoard, log."""
        return RunFolder(self.path / "train")

    @property
    def evaluation(self) -> Path:
        """Responses and grades of every policy that was evaluated; made only with gold."""
        return self.path / "evaluation"

    @property
    def result(self) -> Path:
        """Everything the report says, in one JSON file."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """The page with tables and pictures."""
        return self.path / "report.html"
