"""One adaptation: what the user asked for, and the paths in its output folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from restrain_openrlhf.evaluation.protocol import PAPER
from restrain_openrlhf.run.folder import RunFolder
from test_time.problems import Source
from test_time.stopping import StopRules

# How the votes that give answers sample: as evaluations do, whatever training samples at. A rule fixed beforehand needs
# no gold. Agreement could not choose: it grows as the temperature falls, right or wrong.
VOTE_TEMPERATURE, VOTE_TOP_P = PAPER.temperature, PAPER.top_p


@dataclass(frozen=True)
class Adaptation:
    """What a user chose. `config` (else a preset by `method`, `preset` and size) gives method and OpenRLHF's flags.

    `votes`: rollouts per problem, before and after training. `boxed` and `chat`: None means as the configuration says.
    `gold` and `heldout` are for the evaluation, after training. `stop`: None means that no rule ends the run.
    """

    model: str
    problems: Source
    out: Path
    config: Path | None = None
    method: str | None = None
    preset: str = "paper"
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
        """Whether accuracies can be measured: there is a gold file, or the test set is a known benchmark."""
        return self.gold is not None or self.problems.is_benchmark


@dataclass(frozen=True)
class AdaptationFolder:
    """Paths under `--out`."""

    path: Path

    @property
    def problems(self) -> Path:
        """The problems as the policy gets them, before its chat template; without answers."""
        return self.path / "prompts.jsonl"

    @property
    def before(self) -> Path:
        """The base model's votes sampled as in training: the reference for u_x."""
        return self.path / "before.jsonl"

    @property
    def base_vote(self) -> Path:
        """The base model's votes sampled as the answers are, which `before.jsonl` may be already."""
        return self.path / "base_vote.jsonl"

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
        """Responses and grades of every evaluated policy; only with gold."""
        return self.path / "evaluation"

    @property
    def result(self) -> Path:
        """All numbers of the report, as JSON."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """A page with tables and plots."""
        return self.path / "report.html"
