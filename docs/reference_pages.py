"""Writes the reference pages that are made from the code: configuration keys from the models, commands from typer.

Run `make pages` after a change of a key, an option or a preset; a test compares the pages with the code.
"""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

import test_time.cli
from restrain_openrlhf.answers import KINDS
from restrain_openrlhf.commands import main as restrain
from restrain_openrlhf.commands.k8s.cluster import Cluster
from restrain_openrlhf.config.checks.keys import CONTRADICTIONS, INPUTS, KEYS, OUT_OF_BOUNDS, Check, refused_by_release
from restrain_openrlhf.config.checks.layout import LAYOUT
from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.documents import HOURS_FILE
from restrain_openrlhf.config.gpu_layout import GpuLayout, rollout_batches, rollouts_of_step
from restrain_openrlhf.config.host_flags import flags_of, host_parser
from restrain_openrlhf.config.hours import (
    CARDS,
    TOKENS,
    CardName,
    generated_per_second,
    operations_of_training,
    paddings,
    step_seconds,
)
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB, Phase
from restrain_openrlhf.config.memory.shape import shape_of
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
ONE_GPU, COMMANDS_PAGE = "operations/one_gpu.md", "reference/commands.md"
# On a page that people write, everything below this line is made here.
MADE = "<!-- Made by docs/reference_pages.py from here on: run `make pages`. -->\n"
FLAG = re.compile(r"\w+(?:\.\w+)+")
FLAG_NAMES = frozenset(option[2:] for option in host_parser()._option_string_actions if option.startswith("--"))
# The blocks whose keys depend on their `name`, by the model of any of their choices, and where their keys are.
CHOICES = {"CommonSettings": "#methods", "AnswerKind": "#kinds-of-answers"}


def pages() -> Mapping[str, str]:
    """The text of each page, and of the presets' hours, by its path below docs/."""
    return {
        f"../configs/{HOURS_FILE.name}": hours_file(),
        "reference/configuration.md": configuration_page(),
        COMMANDS_PAGE: commands_page(),
        "reference/refused_flags.md": refused_flags_page(),
        ONE_GPU: one_gpu_page(),
    }


def configuration_page() -> str:
    """Every key of a run, of the service, of each method's settings, and of each kind of answer's."""
    parts = [
        "# Configuration keys\n\nGenerated from the code that reads the files. Any other key is refused.\n",
        "## A run\n\nFor `restrain train CONFIG`. `python -m restrain_openrlhf.hook.train_ppo_ray` has the "
        "same keys except `run_dir`, `openrlhf` and `share_gpus`.\n",
        table(RunConfig),
        "`extends: FILE` (a path relative to this file) merges this file over FILE, block by block. A block with "
        "another `name` (`method:`, `answers:`) replaces FILE's. FILE may extend another. `extends: "
        "PRESET` merges it over a preset, named as `restrain presets` lists it.\n",
        "Words without quotes are read as PyYAML reads them (YAML 1.1: `yes` is true), and `1e-5` is a number.\n",
        "## The scoring service\n\nFor `restrain serve --config FILE`.\n",
        table(ServiceConfig),
        "## The cluster file\n\n`restrain k8s render --cluster FILE`. A key that is null or empty leaves what "
        "the overlay has. Each is an option of the commands too: `--storage-class`.\n",
        table(Cluster),
        "## Methods\n\nThe keys of the `method:` block. `name` chooses the method.\n",
        choices(METHODS),
        "## Kinds of answers\n\nThe keys of the `answers:` block. `name` chooses the [kind](../concepts/kinds.md).\n",
        choices(KINDS),
    ]
    return "\n".join(parts)


def choices(models: Mapping[str, type[BaseModel]]) -> str:
    """What each name chooses, then each key once, with the names that have it."""
    names = "".join(f"| `{name}` | {first_line(model)} |\n" for name, model in models.items())
    having: dict[str, list[str]] = {}
    for name, model in models.items():
        for row in rows(model):
            having.setdefault(row, []).append(name)
    all_names = [*models]
    keyed = "".join(
        f"| {'all' if names_of == all_names else ', '.join(f'`{name}`' for name in names_of)} {row}"
        for row, names_of in having.items()
        if not row.startswith("| `name` |")
    )
    return f"| name | what it chooses |\n|---|---|\n{names}\n| of {HEADER.replace('|---', '|---|---', 1)}{keyed}"


def commands_page() -> str:
    """Every command with the first paragraph of its help."""
    intro = (
        "# Commands\n\nGenerated from the commands. `--help` after a command prints its arguments and options; the "
        "site that `make docs` builds lists them on this page.\n\n| command | what it does |\n|---|---|\n"
    )
    return intro + "".join(
        f"| `{name}` | {' '.join(command.help.split(chr(10) * 2)[0].split())} |\n"
        for name, command in _all_commands()
        if not hasattr(command, "commands")
    )


def options_of_commands() -> str:
    """Every command with its arguments and options. What several commands share has one line, in a list of its own."""
    commands = list(_all_commands())
    counted = Counter(row for _, command in commands for row in _parameter_rows(command))
    shared: dict[str, str] = {}
    for row, number in counted.most_common():
        if number > 1:
            shared.setdefault(row.split(": ")[0], row)
    of_cluster = {field.description for field in Cluster.model_fields.values()}
    of_many = (
        "## Options of several commands\n\nThe commands below `restrain k8s` also take each key of [the cluster "
        "file](configuration.md#the-cluster-file).\n\n"
    ) + "".join(row for row in shared.values() if not any(str(said) in row for said in of_cluster))
    return "\n".join((of_many, *(_section(name, command, shared.values()) for name, command in commands)))


def _all_commands() -> Iterator[tuple[str, Any]]:
    for name, app in COMMANDS.items():
        yield from _commands(name, typer.main.get_command(app))


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {word}", inner)


def _section(name: str, command: Any, shared: Collection[str]) -> str:
    """A command's help, then its own arguments and options, then the names of those that it shares."""
    found = _parameter_rows(command)
    own, others = ([row for row in found if (row in shared) is is_shared] for is_shared in (False, True))
    said = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    parts = [f"{'#' * (name.count(' ') + 2)} `{name}`\n", f"{said}\n"]
    names = ", ".join(row.split(": ")[0].removeprefix("* ") for row in others)
    also = f"* {'Also' if own else 'Options'}: {names}.\n" if others else ""
    return "\n".join([*parts, "".join((*own, also))] if found else parts)


def _parameter_rows(command: Any) -> list[str]:
    """The arguments and options of a command that `--help` lists, without Python's names of types."""
    context = typer.Context(command)
    listed = [each.get_help_record(context) for each in command.params]
    named = [(re.sub(r" <[^|]*>$", "", name), said) for name, said in filter(None, listed)]
    return [f"* `{name}`: {' '.join(said.split())}\n" for name, said in named]


REFUSED_BY = {
    "Flags that the installed OpenRLHF does not support": (refused_by_release,),
    "Numbers outside of their bounds": OUT_OF_BOUNDS,
    "Flags that would change the maths, or stop a run halfway": CONTRADICTIONS,
    "Flags and keys of the configuration that contradict each other": KEYS,
    "Layouts on which OpenRLHF fails or hangs": LAYOUT,
    "Settings that must be given": INPUTS,
}


def refused_flags_page() -> str:
    """Every check of the gate: the flags that it reads, and its reason, with VALUE in the place of a flag's own."""
    intro = (
        "# Refused flags\n\nGenerated from the checks. `restrain train`, `show`, `integrate`, `k8s render`, "
        "`test-time adapt` and `python -m restrain_openrlhf.hook.train_ppo_ray` apply all of them in this "
        "order, before anything starts. Then they check the memory, if a GPU's is known, and what the [installed "
        "stack](../start/install.md#with-a-gpu) does not support. `restrain integrate` prints the smallest change of "
        "[your command](../journeys/integration.md) that passes.\n"
    )
    tables = (f"## {title}\n\n{_refused_rows(checks)}" for title, checks in REFUSED_BY.items())
    return "\n".join((intro, *tables))


def _refused_rows(checks: Iterable[Check]) -> str:
    """A row for each reason, with all flags that it refuses."""
    flags: dict[str, list[str]] = {}
    for check in checks:
        named = _flags_of_check(check)
        flags.setdefault(_said(str(check.__doc__)).replace(f"{named} is VALUE. Set it", "Set it"), []).append(named)
    rows = (f"| {', '.join(named)} | {reason} |\n" for reason, named in flags.items())
    return f"| flags | refused |\n|---|---|\n{''.join(rows)}"


def _said(reason: str) -> str:
    """The first paragraph of a reason, flags as code."""
    text = re.sub(r"\{[\w.]+(?:!r)?\}", "VALUE", reason.split("\n\n", maxsplit=1)[0].replace("`", ""))
    return FLAG.sub(lambda found: f"`{found[0]}`" if found[0] in FLAG_NAMES else found[0], text).replace("|", "\\|")


def _flags_of_check(check: Check) -> str:
    """Those that the reason names; of a reason that is worked out, those that its function names."""
    text = str(check.__doc__) if "refused_if" in check.__qualname__ else inspect.getsource(check)
    return ", ".join(f"`{name}`" for name in dict.fromkeys(FLAG.findall(text)) if name in FLAG_NAMES)


FLAGSHIP = "dapo14k/qwen3-4b-base/restrain"
# The presets with hours, their prompts and the card that is assumed. The help of `restrain presets` names the cards.
TIMED: Mapping[str, tuple[int, CardName]] = {
    "dapo14k/llama3.2-3b-instruct/restrain": (14_116, "A100"),
    "dapo14k/octothinker-8b-hybrid-base/restrain": (14_116, "A100"),
    "dapo14k/qwen2.5-math-1.5b/restrain": (14_116, "A100"),
    "dapo14k/qwen2.5-math-7b/restrain": (14_116, "A100"),
    "dapo14k/qwen3-1.7b-base/restrain": (14_116, "A100"),
    FLAGSHIP: (14_116, "A100"),
    "one_gpu/141gb/qwen3-4b-base": (6_400, "H200"),
    "one_gpu/24gb/llama3.2-3b-instruct-lora": (6_400, "RTX 4090"),
    "one_gpu/24gb/qwen3-0.6b-base": (6_400, "RTX 4090"),
    "one_gpu/24gb/qwen3-1.7b-base-lora": (6_400, "RTX 4090"),
    "one_gpu/24gb/qwen3-4b-base-lora": (6_400, "RTX 4090"),
    "one_gpu/24gb/test_time-llama3.2-3b-instruct-lora": (30, "RTX 4090"),
    "one_gpu/80gb/qwen3-4b-base": (6_400, "A100"),
    "one_gpu/80gb/qwen3-4b-base-lora": (6_400, "A100"),
    "one_gpu/80gb/test_time-llama3.1-8b-instruct-lora": (30, "A100"),
    "test_time/llama3.1-8b-instruct/aime24/restrain": (30, "A100"),
}
# The phases of a step where all models share one GPU.
PHASES = [phase.value for phase in Phase if phase is not Phase.REFERENCE]
MEMORY = """
GiB on the GPU in each phase of a step, and left at the peak of a GPU of 24, 80 or 141 GiB. Then GiB of the host's
memory while the optimizer and vLLM sleep there, GiB of one checkpoint, and the tokens of an engine's cache for each
rollout that it draws at once. `restrain show PRESET --memory --gpu-memory 24` prints every line with its formula.
"""


def one_gpu_page() -> str:
    """The page on one GPU: what people wrote, then hours of presets for GPUs, and memory of those for one."""
    written = (Path(__file__).parent / ONE_GPU).read_text(encoding="utf-8").partition(MADE)[0]
    names = [name for name in preset_names() if name.startswith("one_gpu/")]
    hours = "".join(hours_row(name) for name in TIMED)
    return "\n".join(
        (
            f"{written}{MADE}",
            cards_table(),
            "| preset | card | steps | seconds a step, padded: generation + passes | hours | packed |\n"
            f"|---|---|---|---|--:|--:|\n{hours}",
            f"## Memory of the presets\n{MEMORY}",
            f"| preset | {' | '.join(PHASES)} | left | host | checkpoint | tokens |\n|---|{'--:|' * (len(PHASES) + 4)}",
            "".join(memory_row(name) for name in names),
        )
    )


def hours_file() -> str:
    """The padded hours of one_gpu_page, for `restrain presets`."""
    return "".join(f"{name},{hours_row(name).split(' | ')[-2]}\n" for name in TIMED)


def cards_table() -> str:
    """The hours of the paper's run by card, after one lever and the other; none where it does not fit."""
    flags, (prompts, _) = preset_flags(FLAGSHIP), TIMED[FLAGSHIP]
    with_checkpoints = {**flags, "actor.gradient_checkpointing_enable": True, "train.micro_batch_size": 4}
    levers = (
        (with_checkpoints, False, False),
        (with_checkpoints, True, False),
        (flags, True, False),
        (flags, True, True),
    )
    shape, rows = shape_of(flags["actor.model_name_or_path"]), []
    for name, card in CARDS.items():
        generated = generated_per_second(flags, shape, card)
        seconds = [
            sum(step_seconds(asked, shape, generated, card.flops, is_packed=is_packed, is_own=is_own))
            for asked, is_packed, is_own in levers
        ]
        fits = estimate(flags, shape, card.gib * GIB).peak[1] <= 0.9 * card.gib * GIB
        hours = [round(rollout_batches(prompts, flags) * each / 3600) for each in seconds]
        cells = [f"{hours[0]}", *(f"{each} (−{last - each})" for last, each in pairwise(hours))]
        rows.append(f"| 8 × {name} | {' | '.join(cells) if fits else 'does not fit | | |'} |\n")
    head = "| the paper's 2,220 steps | padded, checkpoints | packed | and no checkpoints | and no old policy's pass |"
    return f"{head}\n|---|--:|--:|--:|--:|\n{''.join(rows)}"


def hours_row(name: str) -> str:
    """The arithmetic that the page describes."""
    flags, (prompts, card) = preset_flags(name), TIMED[name]
    layout, steps, flops = GpuLayout.of(flags), rollout_batches(prompts, flags), CARDS[card].flops
    shape = shape_of(flags["actor.model_name_or_path"])
    generated = generated_per_second(flags, shape, CARDS[card])
    padded, packed = (step_seconds(flags, shape, generated, flops, is_packed=each) for each in (False, True))
    made, (forward, training) = f"{rollouts_of_step(flags)} × {TOKENS:,}", paddings(flags)
    work = f"(4 × {forward:.2f} + {operations_of_training(flags)} × {training:.2f})"
    passed = f"{made} × {work} × {shape.parameters / 1e9:.2f}e9 / {layout.policy * flops / 1e12:.0f}e12"
    hours = [f"{steps * sum(each) / 3600:.0f}" for each in (padded, packed)]
    parts = f"{made} / {layout.engines * generated:,.0f} + {passed} = {' + '.join(f'{each:.0f}' for each in padded)}"
    return f"| `{name}` | {card} | {steps} | {parts} | {hours[0]} | {hours[1]} |\n"


def memory_row(name: str) -> str:
    """The sums of the estimate on the GPU that the preset's folder names, in GiB, and the cache's tokens a rollout."""
    flags = preset_flags(name)
    gib = int(name.split("/")[1].removesuffix("gb"))
    found = estimate(flags, shape_of(flags["actor.model_name_or_path"]), gib * GIB)
    host, checkpoint = sum(line.bytes for line in found.host), found.disk[0].bytes
    sizes = (*found.peak_bytes.values(), gib * GIB - found.peak[1], host, checkpoint)
    cells = " | ".join(f"{size / GIB:.1f}" for size in sizes)
    return f"| `{name}` | {cells} | {found.cache.tokens // found.cache.rollouts:,} |\n"


def preset_flags(name: str) -> dict[str, Any]:
    """OpenRLHF's flags of a preset, as its record has them."""
    return flags_of(load_run_config(find_config(name)))


def table(model: type[BaseModel]) -> str:
    """The keys of a model, those of its blocks included."""
    return HEADER + "".join(rows(model))


def rows(model: type[BaseModel]) -> Iterator[str]:
    """A line for each key of a model."""
    schema = model.model_json_schema()
    return (key.row() for key in keys(schema, schema.get("$defs", {})))


@dataclass(frozen=True)
class Key:
    """One key of a configuration file, blocks joined by dots, and its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    def row(self) -> str:
        """A line of the table."""
        meaning = " ".join(self.schema.get("description", "").split()).replace("|", "\\|")
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
            known = _with_choices(field, definitions) if "enum" in block else field
            yield Key(prefix + name, known, required=name in schema.get("required", ()))


def _with_choices(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field with the values of an enumeration in the place of its name."""
    return {**field, "anyOf": [definitions.get(_reference(part), part) for part in field["anyOf"]]}


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


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
