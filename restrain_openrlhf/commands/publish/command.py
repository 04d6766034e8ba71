"""`restrain publish`: a run's model as a folder for the hub, and on the hub."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.errors import ConfigError


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain train`.")],
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Push the folder to this repository of the hub.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write the folder and push nothing.")] = False,
    out: Annotated[Path | None, to_folder("The folder that is written.", show_default="RUN/hub")] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="`restrain eval` of this model. Repeatable.", show_default="RUN/evaluation, if it is there"),
    ] = None,
    base_evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="`restrain eval` of the base model on the same benchmarks. Repeatable."),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="The base model on the hub, where training had it in a folder."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a repository that only you see.")] = False,
) -> None:
    """Write a run's model with its card as a folder for the Hugging Face hub, and push it.

    The hub's token is HF_TOKEN, or that of `hf auth login`.
    """
    from restrain_openrlhf.commands.publish.folder import write_folder  # noqa: PLC0415 - keeps `--help` quick
    from restrain_openrlhf.commands.publish.push import push as push_folder  # noqa: PLC0415
    from restrain_openrlhf.commands.publish.push import refuse_wrong_name  # noqa: PLC0415
    from restrain_openrlhf.commands.publish.trained_run import find_run  # noqa: PLC0415

    if push is None and not dry_run:
        raise ConfigError("Say what to do: --dry-run writes the folder here, --push OWNER/NAME puts it on the hub.")
    if push is not None:
        refuse_wrong_name(push)
    found = find_run(run)
    folder = out or found.path / "hub"
    write_folder(found, folder, push, base_model, evaluation or (), base_evaluation or ())
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"folder: {folder}", markup=False)
    if push is not None and not dry_run:
        message = f"{found.method['name']}, {found.path.name}"
        console.print(f"pushed: {push_folder(folder, push, private, message)}", markup=False)
