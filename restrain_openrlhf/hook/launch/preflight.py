"""Checks the inputs of a run, such as its prompts and its reference, before Ray, vLLM or a model starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from restrain_openrlhf.answers.asked import compare_forms
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.data.jsonl import arrow
from restrain_openrlhf.data.prompt_reader import PromptReader
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.hook.rollout.training_data import copies_of_labelled
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import NeededReference, refuse_mismatch, selected
from restrain_openrlhf.reference.offline_engine import Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import (
    Prompt,
    PromptSource,
    all_rows,
    asked_in,
    count_labelled,
    load_prompts,
    load_tokenizer,
    prompt_source,
    refuse_lost_mark,
    template_identity,
)
from restrain_openrlhf.scoring import GroupScorer

# Tells the entry point that `restrain train` has already checked the run, which takes minutes for many prompts.
CHECKED = "--restrain.checked"


def check_inputs(config: HookConfig, flags: Flags, on_read: Callable[[str], None] = print) -> int:
    """Check the inputs of a run, and return how many prompts of the training file the method trains on in an episode.

    The settings must have been checked (config/this_machine.py: refuse_here). `on_read` gets a line that says what was
    read as prompts. Raises a RestrainError for a missing model, bad prompts or a wrong reference.
    """
    inputs = RunInputs.of(config, flags)
    count = inputs.check()
    on_read(inputs.reader.summary())
    return count


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run as its settings name them, not read yet. `reader` reads the prompts of `source`."""

    config: HookConfig
    flags: Flags
    source: PromptSource
    reader: PromptReader

    @classmethod
    def of(cls, config: HookConfig, flags: Flags) -> Self:
        """The inputs that the settings name.

        Raises ConfigError for several data sets, DataError where rollouts could not be kept.
        """
        if config.keeps_rollouts:
            arrow()
        source = prompt_source(flags)
        return cls(config, flags, source, source.reader())

    def check(self) -> int:
        """The number of prompts that are trained on. Raises a RestrainError; see `check_inputs`."""
        config, method = self.config, build(self.config.method)
        if config.agent is not None:
            from restrain_openrlhf.hook.rollout.trajectories import load_executor  # noqa: PLC0415 - imports OpenRLHF

            load_executor(config.agent)
        needed, prompts = self.load()
        labelled = self._labelled() if method.reads_gold else 0
        config.answers.check(prompt.row for prompt in prompts)
        reference = load_reference(config.reference) if config.reference else None
        GroupScorer(method, reference, config.answers)
        if reference is None:
            return self._in_an_episode(len(prompts), labelled)
        refuse_mismatch(reference, needed)
        for prompt in prompts:
            reference.row(prompt.text, prompt.where, prompt.row)
        if method.needs_reference:
            reference.refuse_missing(config.missing_limit)
        texts = [prompt.text for prompt in prompts]
        count = len(texts) if method.selection is None else len(selected(method.selection, reference, texts))
        return self._in_an_episode(count, labelled)

    def _labelled(self) -> int:
        """How many prompts have a gold answer. Raises DataError where a method that reads gold would find none."""
        column = self.flags["data.label_key"]
        count, _ = count_labelled(self.source, column, self.config.answers)
        if not count:
            raise DataError(
                f"{self.source.dataset}: no row has a gold answer in the column {column!r}, from which the method "
                f"{self.config.method.name!r} learns. Name the column of gold in data.label_key."
            )
        return count

    def _in_an_episode(self, count: int, labelled: int) -> int:
        """The prompts of an episode, in which those with gold may be repeated."""
        share = build(self.config.method).labelled_share
        return count if share is None else count + labelled * (copies_of_labelled(labelled, count, share) - 1)

    def load(self) -> tuple[NeededReference, Sequence[Prompt]]:
        """Read the prompts and check them with the model's tokenizer, without loading weights.

        Returns how the reference must have been drawn, too. Raises ConfigError for a missing model, DataError for bad
        prompts and prompts that are too long.
        """
        model = self.flags["actor.model_name_or_path"]
        fingerprint = model_fingerprint(model)
        tokenizer = load_tokenizer(model, self.source)
        prompts = load_prompts(self.source, tokenizer, self.config.answers, self.reader)
        # What an agent adds to the prompts, and which part of its turns is read, is not known here.
        if self.config.agent is None:
            self.reader.note = compare_forms(self.config.answers, ((each.text, each.row) for each in prompts))
        # The host reads and renders the prompts of eval.dataset as those of training.
        for name in filter(None, str(self.flags["eval.dataset"] or "").split(",")):
            source = replace(self.source, dataset=name.strip(), split=self.flags["eval.split"])
            reader = source.reader()
            for where, row in all_rows(source):
                asked_in(source, where, row, reader)
            if column := self.flags["data.label_key"]:
                count_labelled(source, column, self.config.answers)
        if not self.source.apply_chat_template:
            refuse_lost_mark(prompts[0].text, tokenizer)
        # Without rollout.max_new_tokens the host reserves one token for the response (utils/agent.py).
        room = Sampling(max_len=self.flags["data.max_len"], max_new_tokens=self.flags["rollout.max_new_tokens"] or 1)
        refuse_long_prompts(prompts, tokenizer, room)
        return self._needed(fingerprint, template_identity(self.source, tokenizer)), prompts

    def _needed(self, fingerprint: str, template: str) -> NeededReference:
        """How the reference must have been drawn; but for its votes if the method does not read them."""
        config, flags = self.config, self.flags
        needed = NeededReference(model_fingerprint=fingerprint, template=template, agent=config.agent_identity)
        if not build(config.method).needs_reference:
            return needed
        drawn = {
            "n": flags["rollout.n_samples_per_prompt"],
            "temperature": flags["rollout.temperature"],
            "top_p": flags["rollout.top_p"],
            "max_new_tokens": flags["rollout.max_new_tokens"] or flags["data.max_len"],
        }
        return needed.model_copy(update=drawn).by(config.reference_n, config.reference_sampling)
