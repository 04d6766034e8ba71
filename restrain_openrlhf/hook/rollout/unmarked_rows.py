"""Which rows are evaluation where OpenRLHF runs without our entry point, so that nothing marks those of training.

The host has one data.label_key for both data sets, and draws both by the same calls. What differs is how a group is
drawn: of evaluation's, temperature and number of rollouts are eval.temperature and eval.n_samples_per_prompt, and
nothing else is changed (trainer/ppo_trainer.py, fit; trainer/ppo_trainer_async.py, _run_eval). It trains first.
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
    """Tells evaluation's groups from training's in one rollout actor, by `evaluation` of the configuration.

    Gold reaches nothing but a group that is drawn as `evaluation` says, after another that was not: training's are
    never graded, whatever their labels.
    """

    evaluation: EvaluationDraws | None
    _training: EvaluationDraws | None = field(default=None, init=False)
    _has_warned: bool = field(default=False, init=False)

    def are_evaluation(self, label: Any, drawn: EvaluationDraws, prompt: str) -> bool:
        """Whether a group is to be graded by its label, and not trained on.

        Raises ConfigError for a group that is drawn neither as training nor as evaluation, and where the two cannot be
        told apart; DataError for one of evaluation without a label.
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
        """Once: every later row is alike."""
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
