"""`restrain reference`, `make-`, `merge-` and `subset-reference`: the offline pass of the frozen model."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from restrain_openrlhf.cli.presets import ConfigFile
from restrain_openrlhf.errors import ConfigError

if TYPE_CHECKING:
    from restrain_openrlhf.reference.offline_pass import OfflinePass


def reference(
    model: Annotated[str, typer.Option(help="The frozen base model: a hub id or a local folder.")],
    prompts: Annotated[str, typer.Option(help="Prompts: JSONL, CSV, Parquet, or a hub data set.")],
    out: Annotated[Path, typer.Option(help="The artifact, JSON Lines; its provenance is written beside it.")],
    n: Annotated[int, typer.Option(min=1, help="Rollouts per prompt.")] = 16,
    shard: Annotated[str, typer.Option(metavar="I/K", help="Sample part I of K, counted from 0.")] = "0/1",
    input_key: Annotated[str, typer.Option(help="Column that holds the prompt (data.input_key).")] = "problem",
    input_template: Annotated[str | None, typer.Option(help="Text around the prompt, with {} for it.")] = None,
    apply_chat_template: Annotated[bool, typer.Option(help="Render with the tokenizer's chat template.")] = False,
    temperature: Annotated[float, typer.Option(min=0.0, help="As in training.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="As in training.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length limit of a rollout, in tokens.")] = 4096,
    max_len: Annotated[int, typer.Option(min=2, help="Prompt and rollout together, in tokens.")] = 8192,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal rollouts, sharded or not.")] = 42,
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="GPUs per vLLM engine.")] = 1,
) -> None:
    """Sample the frozen model once per prompt: gives u_x, and SRT's labels. A killed pass goes on where it stopped."""
    from restrain_openrlhf.hook.offline_engine import Sampling  # noqa: PLC0415
    from restrain_openrlhf.hook.prompts import PromptSource  # noqa: PLC0415 - keeps `restrain --help` quick
    from restrain_openrlhf.reference.offline_pass import OfflinePass  # noqa: PLC0415

    source = PromptSource(prompts, input_key, input_template, apply_chat_template)
    sampling = Sampling(
        n=n,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        max_len=max_len,
        seed=seed,
        tensor_parallel_size=tensor_parallel_size,
    )
    index, count = parse_shard(shard)
    _run(OfflinePass.prepare(model, source, sampling, index, count), out)


def make_reference(
    config: ConfigFile,
    n: Annotated[int | None, typer.Option(min=1, help="Rollouts per prompt.", show_default="CONFIG's")] = None,
    shard: Annotated[str, typer.Option(metavar="I/K", help="Sample part I of K, counted from 0.")] = "0/1",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for `restrain train`. Repeatable.")
    ] = None,
) -> None:
    """Sample the reference that CONFIG names, as its training will sample: model, prompts, template, lengths."""
    from restrain_openrlhf.config.overrides import parse_overrides  # noqa: PLC0415 - see reference
    from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: PLC0415
    from restrain_openrlhf.run.reference_pass import offline_pass  # noqa: PLC0415

    resolved = load_run_config(config, parse_overrides(overrides or []))
    job = offline_pass(resolved, n, *parse_shard(shard))
    assert resolved.reference is not None, "offline_pass refuses a configuration without one"
    _run(job, resolved.reference)


def _run(job: "OfflinePass", out: Path) -> None:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("reference pass", total=len(job.prompts))
        path = job.run(out, lambda done: progress.advance(task, done))
    console.print(f"reference: {path}", soft_wrap=True)


def merge_reference(
    shards: Annotated[list[Path], typer.Argument(help="All shards of one pass.")],
    out: Annotated[Path, typer.Option(help="The whole artifact.")],
) -> None:
    """Join the shards of one offline pass; refused unless they are of one pass and complete."""
    from restrain_openrlhf.reference.parts import merge  # noqa: PLC0415

    count = merge(shards, out)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)


def subset_reference(
    artifact: Annotated[Path, typer.Argument(help="A whole artifact of `restrain reference`.")],
    out: Annotated[Path, typer.Option(help="The smaller artifact.")],
    n: Annotated[int | None, typer.Option(min=1, help="Keep the first N rollouts of each prompt.")] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Keep these problems only: JSONL, CSV, Parquet, or a hub data set.")
    ] = None,
    input_key: Annotated[str, typer.Option(help="Column that holds the prompt (data.input_key).")] = "problem",
) -> None:
    """Vote again on fewer rollouts or fewer prompts of an offline pass, without sampling again."""
    from restrain_openrlhf.hook.prompts import PromptSource, load_prompts  # noqa: PLC0415 - see reference
    from restrain_openrlhf.reference import load_reference  # noqa: PLC0415
    from restrain_openrlhf.reference.parts import subset  # noqa: PLC0415

    if n is None and prompts is None:
        raise ConfigError("Neither --n nor --prompts is given, so the subset would be the whole. Give one or both.")
    kept = None if prompts is None else [row.problem for row in load_prompts(PromptSource(prompts, input_key))]
    count = subset(load_reference(artifact), out, n, kept)
    Console(stderr=True).print(f"reference: {out}, {count} prompts", soft_wrap=True)


def parse_shard(text: str) -> tuple[int, int]:
    """`0/4` as (0, 4). Raises ConfigError for anything that is no part of a whole."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise ConfigError(f"--shard {text!r}: give I/K with 0 <= I < K, for example 0/4.")
    return int(match[1]), int(match[2])
