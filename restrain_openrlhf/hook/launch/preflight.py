"""Everything that can be checked before Ray, vLLM or a model starts: settings first, then what a run is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from restrain_openrlhf.answers import AnswerKind
from restrain_openrlhf.config.blocks import Agent
from restrain_openrlhf.config.this_machine import refuse_here
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.data.jsonl import arrow
from restrain_openrlhf.method import Method, build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.checks import NeededReference, refuse_mismatch, refuse_missing, selected
from restrain_openrlhf.reference.offline_engine import Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import (
    Prompt,
    PromptSource,
    load_prompts,
    prompt_source,
    refuse_lost_mark,
    template_identity,
)
from restrain_openrlhf.scoring import GroupScorer

if TYPE_CHECKING:
    from restrain_openrlhf.hook.rollout.group_scoring import ScoreService

# Tells OpenRLHF's entry point that `restrain train`, which starts it, has checked the run: a large prompt file takes
# minutes.
CHECKED = "--restrain.checked"


def check_run(config: HookConfig, flags: dict[str, Any]) -> int:
    """How many prompts an episode has: those of the training file that the method trains on.

    Raises a RestrainError for wrong flags, an impossible layout, a missing model, bad prompts, another reference.
    """
    refuse_here(config, flags)
    return RunInputs.of(config, flags).check()


@dataclass(frozen=True)
class LoadedPrompts:
    """A run's prompts, with the identities of their template and of the model that is trained on them."""

    fingerprint: str
    template: str
    prompts: Sequence[Prompt]


@dataclass(frozen=True)
class RunInputs:
    """All that a run is made from, as its settings name it: nothing of it has been read yet.

    `n`: trained rollouts of a prompt. `needed`: what the reference must be made with, but for model and template.
    `agent` is the user's own, which draws in the place of OpenRLHF's single turn.
    `service` scores the groups in the place of the rollout actors; `reads_answers` says that they read answers all the
    same, of evaluations.
    """

    model: str
    source: PromptSource
    room: Sampling
    kind: AnswerKind
    method: Method
    n: int
    reference: Path | None
    needed: NeededReference
    agent: Agent | None
    service: "ScoreService | None"
    reads_answers: bool

    @classmethod
    def of(cls, config: HookConfig, flags: dict[str, Any]) -> Self:
        """Raises ConfigError for several data sets or a wrong token, DataError where rollouts could not be kept."""
        if config.keeps_rollouts:
            arrow()
        n, new_tokens = flags["rollout.n_samples_per_prompt"], flags["rollout.max_new_tokens"]
        drawn = NeededReference(
            n=n,
            temperature=flags["rollout.temperature"],
            top_p=flags["rollout.top_p"],
            max_new_tokens=new_tokens or flags["data.max_len"],
            agent=config.agent_identity,
        )
        method = build(config.method)
        return cls(
            model=flags["actor.model_name_or_path"],
            source=prompt_source(flags),
            # Without rollout.max_new_tokens the host leaves one token (utils/agent.py).
            room=Sampling(max_len=flags["data.max_len"], max_new_tokens=new_tokens or 1),
            kind=config.answers,
            method=method,
            n=n,
            reference=config.reference,
            # Of a reference that the method does not read, model, template and agent alone must be the run's.
            needed=drawn.by(config.reference_n, config.reference_sampling)
            if method.needs_reference
            else NeededReference(agent=drawn.agent),
            agent=config.agent,
            service=_service(config),
            reads_answers=config.service is None or bool(flags["eval.dataset"]),
        )

    def check(self) -> int:
        """How many of the prompts are trained on. Raises a RestrainError as `check_run`."""
        if self.agent is not None:
            from restrain_openrlhf.hook.rollout.trajectories import load_executor  # noqa: PLC0415 - imports OpenRLHF

            load_executor(self.agent)
        loaded = self.load()
        if self.reads_answers:
            self.kind.check(prompt.row for prompt in loaded.prompts)
        texts = [prompt.text for prompt in loaded.prompts]
        needed = self.needed.model_copy(update={"model_fingerprint": loaded.fingerprint, "template": loaded.template})
        if self.service is not None:
            self.service.check(self.method, texts[0], self.n, needed)
            if self.method.selection is None:
                # The service has the reference; only choosing the prompts needs it here.
                return len(texts)
        reference = load_reference(self.reference) if self.reference else None
        GroupScorer(self.method, reference, self.kind)
        if reference is None:
            return len(texts)
        refuse_mismatch(reference, needed)
        refuse_missing(reference, loaded.prompts)
        selection = self.method.selection
        return len(texts) if selection is None else len(selected(selection, reference, texts))

    def load(self) -> LoadedPrompts:
        """The prompts, checked with the model's tokenizer; weights stay where they are.

        Raises ConfigError for a missing model, DataError for bad prompts and ones too long.
        """
        fingerprint = model_fingerprint(self.model)
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

        # As the host loads it (openrlhf/utils/utils.py).
        tokenizer = AutoTokenizer.from_pretrained(self.model, trust_remote_code=True)
        prompts = load_prompts(self.source, tokenizer, self.kind)
        if not self.source.apply_chat_template:
            refuse_lost_mark(prompts[0].text, tokenizer)
        refuse_long_prompts(prompts, tokenizer, self.room)
        return LoadedPrompts(fingerprint, template_identity(self.source, tokenizer), prompts)


def _service(config: HookConfig) -> "ScoreService | None":
    if config.service is None:
        return None
    from restrain_openrlhf.hook.rollout.group_scoring import (  # noqa: PLC0415 - needs aiohttp, as OpenRLHF does
        TRIAL_SECONDS,
        ScoreService,
    )

    return ScoreService.of(config, config.service, TRIAL_SECONDS)
