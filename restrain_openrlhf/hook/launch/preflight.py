"""Everything that can be checked before Ray, vLLM or a model starts: first settings, then the inputs of the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.config.blocks import Agent
from restrain_openrlhf.config.this_machine import refuse_here
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.data.jsonl import arrow
from restrain_openrlhf.data.prompt_reader import PromptReader
from restrain_openrlhf.method import Method, build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.checks import NeededReference, refuse_mismatch, refuse_missing, selected
from restrain_openrlhf.reference.offline_engine import Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import (
    Prompt,
    PromptSource,
    all_rows,
    asked_in,
    load_prompts,
    prompt_source,
    refuse_lost_mark,
    template_identity,
)
from restrain_openrlhf.scoring import GroupScorer

if TYPE_CHECKING:
    from restrain_openrlhf.hook.rollout.group_scoring import ScoreService

# Tells the entry point that `restrain train` has already checked the run, which takes minutes for many prompts.
CHECKED = "--restrain.checked"


def check_run(config: HookConfig, flags: dict[str, Any], on_read: Callable[[str], None] = print) -> int:
    """Check a run, and return how many prompts of the training file the method trains on in an episode.

    `on_read` gets a line that says what was read as prompts. Raises a RestrainError for wrong flags, an impossible
    layout, a missing model, bad prompts or a wrong reference.
    """
    refuse_here(config, flags)
    inputs = RunInputs.of(config, flags)
    count = inputs.check()
    on_read(inputs.reader.summary())
    return count


@dataclass(frozen=True)
class LoadedPrompts:
    """The prompts of a run, and the identities of their template and of the model."""

    fingerprint: str
    template: str
    prompts: Sequence[Prompt]


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run as its settings name them; nothing has been read yet.

    `reader` reads the prompts of `source`, and `evaluated` are the sets of eval.dataset. `n` is the number of trained
    rollouts per prompt. `needed` says how the reference must have been made, without model and template, and
    `missing_limit` how many of its rollouts may have no answer. `agent` is the user's own, if one draws the rollouts.
    `service` scores the groups if it is not None. `reads_answers` says whether the run's own processes read answers,
    for votes or for evaluations.
    """

    model: str
    source: PromptSource
    reader: PromptReader
    evaluated: Sequence[PromptSource]
    room: Sampling
    kind: AnswerKind
    method: Method
    n: int
    reference: Path | None
    needed: NeededReference
    missing_limit: float | None
    agent: Agent | None
    service: "ScoreService | None"
    reads_answers: bool

    @classmethod
    def of(cls, config: HookConfig, flags: dict[str, Any]) -> Self:
        """The inputs that the settings name.

        Raises ConfigError for several data sets or a wrong token, DataError where rollouts could not be kept.
        """
        if config.keeps_rollouts:
            arrow()
        method, source = build(config.method), prompt_source(flags)
        named = str(flags["eval.dataset"] or "").split(",")
        return cls(
            model=flags["actor.model_name_or_path"],
            source=source,
            reader=source.reader(),
            evaluated=[replace(source, dataset=name.strip(), split=flags["eval.split"]) for name in named if name],
            # Without rollout.max_new_tokens the host reserves one token for the response (utils/agent.py).
            room=Sampling(max_len=flags["data.max_len"], max_new_tokens=flags["rollout.max_new_tokens"] or 1),
            kind=config.answers,
            method=method,
            n=flags["rollout.n_samples_per_prompt"],
            reference=config.reference,
            needed=_needed_reference(config, flags, method),
            missing_limit=config.missing_limit if method.needs_reference else None,
            agent=config.agent,
            service=_service(config),
            reads_answers=config.service is None or bool(flags["eval.dataset"]),
        )

    def check(self) -> int:
        """The number of prompts that are trained on. Raises a RestrainError; see `check_run`."""
        if self.agent is not None:
            from restrain_openrlhf.hook.rollout.trajectories import load_executor  # noqa: PLC0415 - imports OpenRLHF

            load_executor(self.agent)
        loaded = self.load()
        if self.reads_answers:
            self.kind.check(prompt.row for prompt in loaded.prompts)
        texts = [prompt.text for prompt in loaded.prompts]
        needed = self.needed.model_copy(update={"model_fingerprint": loaded.fingerprint, "template": loaded.template})
        if self.service is not None:
            self.service.check(self.method, texts[0], self.n, needed, loaded.prompts[0].row)
            if self.method.selection is None:
                # The service has read the reference; this process only needs it to select prompts.
                return len(texts)
        reference = load_reference(self.reference) if self.reference else None
        GroupScorer(self.method, reference, self.kind)
        if reference is None:
            return len(texts)
        refuse_mismatch(reference, needed)
        refuse_missing(reference, loaded.prompts)
        reference.refuse_missing(self.missing_limit)
        selection = self.method.selection
        return len(texts) if selection is None else len(selected(selection, reference, texts))

    def load(self) -> LoadedPrompts:
        """Read the prompts and check them with the model's tokenizer, without loading weights.

        Raises ConfigError for a missing model, DataError for bad prompts and prompts that are too long.
        """
        fingerprint = model_fingerprint(self.model)
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

        # The host loads it the same way (openrlhf/utils/utils.py).
        tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=True)
        prompts = load_prompts(self.source, tokenizer, self.kind, self.reader)
        for source in self.evaluated:
            reader = source.reader()
            for where, row in all_rows(source):
                asked_in(source, where, row, reader)
        if not self.source.apply_chat_template:
            refuse_lost_mark(prompts[0].text, tokenizer)
        refuse_long_prompts(prompts, tokenizer, self.room)
        return LoadedPrompts(fingerprint, template_identity(self.source, tokenizer), prompts)


def _needed_reference(config: HookConfig, flags: dict[str, Any], method: Method) -> NeededReference:
    """How the reference must have been drawn; only by which agent if the method does not read its votes."""
    if not method.needs_reference:
        return NeededReference(agent=config.agent_identity)
    drawn = NeededReference(
        n=flags["rollout.n_samples_per_prompt"],
        temperature=flags["rollout.temperature"],
        top_p=flags["rollout.top_p"],
        max_new_tokens=flags["rollout.max_new_tokens"] or flags["data.max_len"],
        agent=config.agent_identity,
    )
    return drawn.by(config.reference_n, config.reference_sampling)


def _service(config: HookConfig) -> "ScoreService | None":
    if config.service is None:
        return None
    from restrain_openrlhf.hook.rollout.group_scoring import (  # noqa: PLC0415 - needs aiohttp, as OpenRLHF does
        TRIAL_SECONDS,
        ScoreService,
    )

    return ScoreService.of(config, config.service, TRIAL_SECONDS)
