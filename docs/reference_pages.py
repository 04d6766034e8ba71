"""The reference pages that are made from the code: configuration keys from the models, commands from typer."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click

import test_time.cli
from restrain_openrlhf.answers import KINDS
from restrain_openrlhf.commands import main as restrain
from restrain_openrlhf.config.checks.contradictions import CONTRADICTIONS, Check
from restrain_openrlhf.config.checks.keys import INPUTS, KEYS
from restrain_openrlhf.config.checks.layout import LAYOUT
from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.gpu_layout import rollout_batches
from restrain_openrlhf.config.host_flags import flags_of, host_parser
from restrain_openrlhf.config.memory import GIB, estimate, shape_of
from restrain_openrlhf.config.memory.table import as_markdown
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.method import METHODS
from restrain_openrlhf.scoring.service.service_config import ServiceConfig

COMMANDS = {"restrain": restrain.app, "test-time": test_time.cli.app}
HEADER = "| key | type | default | meaning |\n|---|---|---|---|\n"
# JSON schema's types, as a reader of YAML would say them.
WORDS = {
    "boolean": "true, false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "path": "path",
    "array": "list",
    "object": "keys and values",
    "null": "null",
}
FLAG = re.compile(r"\w+(?:\.\w+)+")
FLAG_NAMES = frozenset(option[2:] for option in host_parser()._option_string_actions if option.startswith("--"))
# The blocks whose keys depend on their `name`, by the model of any of their choices, and where their keys are.
CHOICES = {"CommonSettings": "#methods", "AnswerKind": "#kinds-of-answers"}


def pages() -> Mapping[str, str]:
    """Markdown by the page's path below docs/."""
    return {
        "reference/configuration.md": configuration_page(),
        "reference/commands.md": commands_page(),
        "reference/one_gpu.md": one_gpu_page(),
        "reference/refused_flags.md": refused_flags_page(),
    }


def configuration_page() -> str:
    """Every key of a run, of the service, of each method's settings, and of each kind of answer's."""
    parts = [
        "# Configuration keys\n\nMade from the models that read the files. A key that is not here is refused.\n",
        "## A run\n\n`restrain train CONFIG`. A run by `python -m restrain_openrlhf.hook.train_ppo_ray` has the "
        "same keys but `run_dir`, `openrlhf` and `share_gpus`.\n",
        table(RunConfig),
        "`extends: FILE` (a path, relative to this file) merges this file over another, block by block, one level.\n",
        "## The scoring service\n\n`restrain serve --config FILE`.\n",
        table(ServiceConfig),
        "## Methods\n\nThe keys of the `method:` block. `name` chooses the method.\n",
    ]
    for name, settings in METHODS.items():
        parts += [f"### `{name}`\n\n{first_line(settings)}\n", table(settings)]
    parts.append(
        "## Kinds of answers\n\nThe keys of the `answers:` block. `name` chooses the [kind](../concepts/kinds.md).\n"
    )
    for name, kind in KINDS.items():
        parts += [f"### `{name}`\n\n{first_line(kind)}\n", table(kind)]
    return "\n".join(parts)


def commands_page() -> str:
    """Every command with its options, as `--help` has them."""
    intro = "# Commands\n\nMade from the commands themselves; `--help` after any of them prints the same.\n\n"
    return intro + "\n".join(_commands(name, app) for name, app in COMMANDS.items())


def _commands(name: str, app: typer.Typer) -> str:
    command = typer.main.get_command(app)
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name=name, indent=1)


REFUSED_BY = {
    "Flags that would change the method's maths, or stop a run halfway": CONTRADICTIONS,
    "Flags and keys of the configuration that contradict each other": KEYS,
    "Layouts that OpenRLHF refuses, or hangs on": LAYOUT,
    "What must be named": INPUTS,
}


def refused_flags_page() -> str:
    """Every check of the gate: the flags that it reads, and its reason, with VALUE in the place of a flag's own."""
    intro = (
        "# Refused flags\n\nMade from the checks. `restrain train`, `show`, `integrate`, `k8s render`, `slurm render`, "
        "`test-time adapt` and `python -m restrain_openrlhf.hook.train_ppo_ray` ask all of them, in this order, before "
        "anything starts. Where a GPU's memory is known, a run that cannot fit is refused after them; what the "
        "[installed stack](../start/install.md#with-a-gpu) cannot serve is refused where a run starts. `restrain "
        "integrate` prints the smallest change for [a command that exists](../journeys/integration.md).\n"
    )
    tables = (f"## {title}\n\n{_refused_rows(checks)}" for title, checks in REFUSED_BY.items())
    return "\n".join((intro, *tables))


def _refused_rows(checks: Iterable[Check]) -> str:
    rows = (f"| {_flags_of_check(check)} | {_said(str(check.__doc__))} |\n" for check in checks)
    return f"| flags | refused |\n|---|---|\n{''.join(rows)}"


def _said(reason: str) -> str:
    """The first paragraph of a reason, flags as code."""
    text = re.sub(r"\{[\w.]+(?:!r)?\}", "VALUE", reason.split("\n\n", maxsplit=1)[0].replace("`", ""))
    return FLAG.sub(lambda found: f"`{found[0]}`" if found[0] in FLAG_NAMES else found[0], text).replace("|", "\\|")


def _flags_of_check(check: Check) -> str:
    """Those that the reason names; of a reason that is worked out, those that its function names."""
    text = str(check.__doc__) if "refused_if" in check.__qualname__ else inspect.getsource(check)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(FLAG.findall(text)) if name in FLAG_NAMES)


@dataclass(frozen=True)
class Speed:
    """What the hours of a preset assume: prompts, tokens of a prompt with its response, and the GPU's speeds."""

    prompts: int
    tokens: int
    generated_per_second: int
    flops: float


# Nothing here was measured. 50e12, 94e12 and 297e12 are 0.3 of 165e12 (RTX 4090), 312e12 (A100) and 989e12 (H200), in
# dense bf16. Where the cache of keys and values holds few rollouts, generation is assumed to be slower.
SPEEDS = {
    "one_gpu/141gb/qwen3-4b-base": Speed(6_400, 1_200, 8_000, 297e12),
    "one_gpu/24gb/llama3.2-3b-instruct-lora": Speed(6_400, 1_200, 2_500, 50e12),
    "one_gpu/24gb/qwen3-0.6b-base": Speed(6_400, 1_200, 6_000, 50e12),
    "one_gpu/24gb/qwen3-1.7b-base-lora": Speed(6_400, 1_200, 4_000, 50e12),
    "one_gpu/24gb/qwen3-4b-base-lora": Speed(6_400, 1_200, 1_500, 50e12),
    "one_gpu/24gb/test_time-llama3.2-3b-instruct-lora": Speed(30, 1_200, 2_500, 50e12),
    "one_gpu/80gb/qwen3-4b-base": Speed(6_400, 1_200, 5_000, 94e12),
    "one_gpu/80gb/qwen3-4b-base-lora": Speed(6_400, 1_200, 5_000, 94e12),
    "one_gpu/80gb/test_time-llama3.1-8b-instruct-lora": Speed(30, 1_200, 3_500, 94e12),
}
# Bytes a second between the GPU and the host's memory, assumed too: half of what PCI Express 4.0 x16 is sold as.
TO_THE_HOST = 16e9


def one_gpu_page() -> str:
    """Hours and memory of the presets for one GPU: what `restrain show PRESET --memory` prints."""
    names = [name for name in preset_names() if name.startswith("one_gpu/")]
    hours = "".join(hours_row(name, SPEEDS[name]) for name in names)
    tables = (f"## `{name}`\n\n{memory_table(name)}" for name in names)
    return "\n".join(
        (
            "# One GPU: memory and hours\n\nMade from the presets; [how to read it](../operations/one_gpu.md).",
            "**Estimates: nothing on this page was measured.**\n\n## Hours\n",
            "| preset | steps | seconds a step: generation + passes + gradients to the host and back | hours |\n"
            "|---|---|---|--:|",
            hours,
            *tables,
        )
    )


def hours_row(name: str, speed: Speed) -> str:
    """Generation by its assumed speed, and the passes by their operations a parameter and token.

    A forward pass has 2 (policy, reference, training, and again with checkpointing), backward 4, or with LoRA 2: the
    base has no gradient. With Adam on the host, each micro-batch's gradient in bf16 goes there, and the sum so far
    comes to the GPU first (DeepSpeed's runtime/zero/stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu).
    """
    flags = one_gpu_flags(name)
    steps = rollout_batches(speed.prompts, flags)
    rollouts = flags["rollout.batch_size"] * flags["rollout.n_samples_per_prompt"]
    size = shape_of(flags["actor.model_name_or_path"]).parameters
    work = 10 if flags["ds.lora.rank"] else 12
    generation = rollouts * speed.tokens / speed.generated_per_second
    passes = rollouts * speed.tokens * work * size / speed.flops
    batches = rollouts // flags["train.micro_batch_size"] if flags["ds.adam_offload"] else 0
    moved = batches * 4 * size / TO_THE_HOST
    made = f"{rollouts} × {speed.tokens:,}"
    drawn = f"{made} / {speed.generated_per_second:,}"
    passed = f"{made} × {work} × {size / 1e9:.2f}e9 / {speed.flops / 1e12:.0f}e12"
    copied = f"{batches} × 4 × {size / 1e9:.2f}e9 / {TO_THE_HOST / 1e9:.0f}e9"
    seconds = f"{drawn} + {passed} + {copied} = {generation:.0f} + {passes:.0f} + {moved:.0f}"
    return f"| `{name}` | {steps} | {seconds} | {steps * (generation + passes + moved) / 3600:.0f} |\n"


def memory_table(name: str) -> str:
    """The estimate on the GPU that the preset's folder names."""
    flags = one_gpu_flags(name)
    gib = int(name.split("/")[1].removesuffix("gb"))
    return as_markdown(estimate(flags, shape_of(flags["actor.model_name_or_path"]), gib * GIB))


def one_gpu_flags(name: str) -> dict[str, Any]:
    """OpenRLHF's flags of a preset, as its record has them."""
    return flags_of(load_run_config(find_config(name)))


def table(model: type[BaseModel]) -> str:
    """The keys of a model, those of its blocks included."""
    schema = model.model_json_schema()
    return HEADER + "".join(key.row() for key in keys(schema, schema.get("$defs", {})))


@dataclass(frozen=True)
class Key:
    """One key of a configuration file, blocks joined by dots, and its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    def row(self) -> str:
        """A line of the table."""
        meaning = self.schema.get("description", "").replace("|", "\\|")
        return f"| `{self.name}` | {type_words(self.schema)} | {self._default()} | {meaning} |\n"

    def _default(self) -> str:
        if "default" not in self.schema:
            return "required" if self.required else "none"
        value = self.schema["default"]
        words = {None: "null", True: "true", False: "false"}
        return f"`{words[value] if value is None or isinstance(value, bool) else value}`"


def keys(schema: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """Every key that a user may write. A block has a row for each of its keys, in the place of its own."""
    for name, field in schema["properties"].items():
        named = _reference(field)
        block = definitions.get(named, {}) if named not in CHOICES else {}
        if "properties" in block:
            yield from keys(block, definitions, f"{prefix}{name}.")
        else:
            yield Key(prefix + name, field, required=name in schema.get("required", ()))


def _reference(field: Mapping[str, Any]) -> str:
    """The definition that a field points to, itself or beside null."""
    pointers = [part["$ref"] for part in (field, *field.get("anyOf", ())) if "$ref" in part]
    return pointers[0].rsplit("/", 1)[-1] if pointers else ""


def type_words(field: Mapping[str, Any]) -> str:
    """The type in words, or what may be chosen."""
    if "anyOf" in field:
        return ", ".join(dict.fromkeys(type_words(part) for part in field["anyOf"]))
    if "$ref" in field:
        return f"[a block]({CHOICES[_reference(field)]})"
    choices = field.get("enum", [field["const"]] if "const" in field else [])
    return ", ".join(f"`{choice}`" for choice in choices) or WORDS[field.get("format", field["type"])]


def first_line(model: type) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())
