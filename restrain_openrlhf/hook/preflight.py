"""Everything that can be checked before Ray, vLLM or a model starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind
from restrain_openrlhf.config.this_machine import refuse_here
from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.method import Method, build
from restrain_openrlhf.records.kept.groups import arrow
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.reference.checks import NeededReference, refuse_mismatch, refuse_missing, selected
from restrain_openrlhf.reference.offline_engine import Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import Prompt, load_prompts, prompt_source, refuse_lost_mark, template_identity
from restrain_openrlhf.scoring import GroupScorer

# Tells OpenRLHF's entry point that `restrain train`, which starts it, has checked the run: a large prompt file takes
# minutes.
CHECKED = "--restrain.checked"


def check_run(config: HookConfig, flags: dict[str, Any]) -> int:
    """How many prompts an episode has: those of the training file that the method trains on.

    Raises a RestrainError for wrong flags, an impossible layout, a missing model, bad prompts, another reference.
    """
    method = build(config.method)
    refuse_here(config, flags)
    if config.keeps_rollouts:
        arrow()
    inputs = check_inputs(flags, config.answers)
    if config.service is None or flags["eval.dataset"]:
        config.answers.check(prompt.row for prompt in inputs.prompts)
    texts = [prompt.text for prompt in inputs.prompts]
    needed = needed_reference(config, flags, inputs)
    if config.service is not None:
        from restrain_openrlhf.hook.rollout.group_scoring import try_service  # noqa: PLC0415 - needs aiohttp, as OpenRLHF does

        try_service(config, config.service, texts[0], flags["rollout.n_samples_per_prompt"], needed)
        if method.selection is None:
            # The service has the reference; only choosing the prompts needs it here.
            return len(texts)
    reference = load_reference(config.reference) if config.reference else None
    GroupScorer(method, reference, config.answers)
    if reference is not None:
        refuse_mismatch(reference, needed)
        refuse_missing(reference, inputs.prompts)
    return trained_on(method, reference, texts)


@dataclass(frozen=True)
class Inputs:
    """What a run is made from: the model's identity, the prompts' template (its identity), the prompts."""

    fingerprint: str
    template: str
    prompts: Sequence[Prompt]


def needed_reference(config: HookConfig, flags: dict[str, Any], inputs: Inputs) -> NeededReference:
    """What the run's reference must be made with; of one that the method does not read, the model and the template."""
    if not build(config.method).needs_reference:
        return NeededReference(model_fingerprint=inputs.fingerprint, template=inputs.template)
    return NeededReference(
        model_fingerprint=inputs.fingerprint,
        template=inputs.template,
        n=flags["rollout.n_samples_per_prompt"],
        temperature=flags["rollout.temperature"],
        top_p=flags["rollout.top_p"],
        max_new_tokens=flags["rollout.max_new_tokens"] or flags["data.max_len"],
    ).by(config.reference_n, config.reference_sampling)


def check_inputs(flags: dict[str, Any], kind: AnswerKind = MATHEMATICS) -> Inputs:
    """The model and the prompts that the host's flags name; weights stay where they are.

    Raises ConfigError for a missing model, DataError for bad prompts and ones too long.
    """
    model = flags["actor.model_name_or_path"]
    fingerprint = model_fingerprint(model)
    source = prompt_source(flags)
    tokenizer = load_tokenizer(model)
    prompts = load_prompts(source, tokenizer, kind)
    if not source.apply_chat_template:
        refuse_lost_mark(prompts[0].text, tokenizer)
    # Without rollout.max_new_tokens the host leaves one token (utils/agent.py).
    room = Sampling(max_len=flags["data.max_len"], max_new_tokens=flags["rollout.max_new_tokens"] or 1)
    refuse_long_prompts(prompts, tokenizer, room)
    return Inputs(fingerprint, template_identity(source, tokenizer), prompts)


def load_tokenizer(model: str) -> Any:
    """The model's tokenizer, as the host loads it (openrlhf/utils/utils.py)."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

    return AutoTokenizer.from_pretrained(model, trust_remote_code=True)


def trained_on(method: Method, reference: Reference | None, prompts: Sequence[str]) -> int:
    """How many of the prompts the method keeps. Raises ReferencePassError where it keeps none."""
    if method.selection is None or reference is None:
        return len(prompts)
    return len(selected(method.selection, reference, prompts))
