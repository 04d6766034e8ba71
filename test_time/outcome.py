"""What an adaptation came to, in one file that reports and sweeps are made from."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from test_time.comparison import Comparison
from test_time.evaluation import Score


class Outcome(BaseModel):
    """`result.json`. Steps are training steps; `chosen_step` 0 is the base model, whose answers stand then.

    `alarm` is what a rule found, whether it `ended_early` the run or the run had come to its end; `unwatched` the
    signals of which nothing was logged. `comparison` and `scores` are there with gold; `heldout` names the sets among
    the scores that were not trained on.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    model: str
    method: str
    configuration: str
    problems: int
    steps: int
    alarm: str | None
    ended_early: bool
    unwatched: tuple[str, ...]
    chosen_step: int
    chosen_model: str
    best_step: int
    best_model: str
    votes: int
    changed: int
    comparison: Comparison | None
    scores: tuple[Score, ...]
    heldout: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
