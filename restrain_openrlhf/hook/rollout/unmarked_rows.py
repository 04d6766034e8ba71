"""Tells rows of evaluation from rows of training where OpenRLHF runs without our entry point, which would mark them.

The host has one data.label_key for both data sets, and draws both with the same calls. Only the sampling differs: an
evaluation has the temperature eval.temperature and eval.n_samples_per_prompt rollouts (trainer/ppo_trainer.py, fit;
trainer/ppo_trainer_async.py, _run_eval). The host trains before it evaluates.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, NoReturn

from restrain_openrlhf.config.blocks import EvaluationDraws
from restrain_openrlhf.errors import ConfigError, DataError


def in_words(drawn: EvaluationDraws) -> str:
    return f"temperature {drawn.temperature:g}, {drawn.n} rollouts of a prompt"


@dataclass
class UnmarkedRows:
    """Recognises groups of evaluation in one rollout actor by the configuration's `evaluation`.

    A group is only graded by gold if it is drawn as `evaluation` says, and an earlier group was drawn otherwise. So no
    group of training is ever graded, whatever its label.
    """

    evaluation: EvaluationDraws | None
    _training: EvaluationDraws | None = field(default=None, init=False)
    _has_warned: bool = field(default=False, init=False)

    def are_evaluation(self, label: Any, drawn: EvaluationDraws, prompt: str) -> bool:
        """Whether a group is graded by its label instead of trained on.

        Raises ConfigError for a group that is drawn neither as training nor as evaluation, and where the two cannot be
        told apart; DataError for a group of evaluation without a label.
        """
        if drawn == self.evaluation:
            self._refuse_training_alike(drawn)
            _refuse_unlabelled(label, prompt)
            return True
        self._training = self._training or drawn
        if drawn != self._training:
            self._refuse_third(drawn, self._training)
        if label not in ("", None):
            self._warn(drawn)
        return False

    def _refuse_training_alike(self, drawn: EvaluationDraws) -> None:
        if self._training is None:
            raise ConfigError(
                f"The first group that this vLLM engine draws has the sampling of `evaluation:` ({in_words(drawn)}). "
                "OpenRLHF trains before it evaluates, so training and evaluation are sampled alike, and gold would be "
                "trained on. Give eval.temperature another value, such as 0.99, and write that under `evaluation:`; "
                "use no more engines than rollout.batch_size."
            )

    def _refuse_third(self, drawn: EvaluationDraws, training: EvaluationDraws) -> NoReturn:
        evaluation = "not set" if self.evaluation is None else in_words(self.evaluation)
        raise ConfigError(
            f"A group is drawn with {in_words(drawn)}; training draws with {in_words(training)}, and `evaluation` is "
            f"{evaluation}. If this group is evaluation, add `evaluation: {{temperature: {drawn.temperature:g}, n: "
            f"{drawn.n}}}` (eval.temperature and eval.n_samples_per_prompt) to the file that RESTRAIN_CONFIG names; "
            "its rows are then graded by their labels. Otherwise leave eval.dataset out."
        )

    def _warn(self, drawn: EvaluationDraws) -> None:
        """Warn once that labels are ignored."""
        if self._has_warned:
            return
        self._has_warned = True
        logging.getLogger(__name__).warning(
            "Rows have a label, which is ignored: their groups (%s) vote, and no gold is trained on. Rows are graded "
            "by their labels only if the file that RESTRAIN_CONFIG names says how evaluation draws, as in "
            "`evaluation: {temperature: 0.6, n: 4}` (eval.temperature, eval.n_samples_per_prompt).",
            in_words(drawn),
        )


def _refuse_unlabelled(label: Any, prompt: str) -> None:
    if label in ("", None):
        raise DataError(
            f"The evaluation prompt {prompt[:60]!r} has no label and cannot be graded. Name the column of the answers "
            "in data.label_key, or leave eval.dataset out."
        )
