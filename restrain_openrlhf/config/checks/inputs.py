"""Checks that ask for a setting to be added: the model, the prompts, the reference, yes or no to the chat template."""

import json
from contextlib import suppress

from restrain_openrlhf.config.checks.contradictions import Check, refused_if
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.memory.shape import model_file

UNSAID = (
    f"{CHAT_TEMPLATE} is not set, and the model's tokenizer has a chat template. Set it to true for an "
    "instruction-tuned model, whose prompts then go through that template and not through data.input_template; or to "
    "false for a base model, whose tokenizer may have a template as well. (Without a configuration, `restrain "
    "reference` has --apply-chat-template and --no-apply-chat-template.)"
)


def has_chat_template(model: str) -> bool:
    """Whether the files of a model's tokenizer have a chat template. False if the files are not on this machine."""
    if model_file(model, "chat_template.jinja") is not None:
        return True
    path = model_file(model, "tokenizer_config.json")
    # A file that is damaged is refused when the tokenizer is loaded.
    with suppress(ValueError, AttributeError):
        return path is not None and bool(json.loads(path.read_bytes()).get("chat_template"))
    return False


def unsaid_template(flags: Flags, *_: object) -> str | None:
    """The tokenizer has a chat template, and data.apply_chat_template is neither true nor false.

    A model whose tokenizer is not on this machine yet is asked about when its tokenizer is loaded. OpenRLHF's own
    command line is not asked, where the switch cannot be false.
    """
    model = flags["actor.model_name_or_path"]
    return UNSAID if flags[CHAT_TEMPLATE] is None and model and has_chat_template(model) else None


INPUTS: tuple[Check, ...] = (
    refused_if(
        lambda flags, *_: not flags["actor.model_name_or_path"],
        "actor.model_name_or_path is not set. Name the model to train.",
    ),
    refused_if(
        lambda flags, *_: not flags["data.prompt_dataset"],
        "data.prompt_dataset is not set. Name the training file or data set.",
    ),
    # A service that scores has the reference itself; the run then only needs one to select prompts.
    refused_if(
        lambda _flags, config, method: (
            config.reference is None
            and method.needs_reference
            and (config.service is None or method.selection is not None)
        ),
        "The method {method!r} needs the frozen model's vote on every prompt, but no reference was given. Make one "
        "with `restrain reference` and name it under `reference:`.",
    ),
    unsaid_template,
)
