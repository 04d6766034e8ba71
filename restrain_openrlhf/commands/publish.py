"""`restrain publish`: a run's model as a folder for the Hugging Face hub, with its card and without private data."""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from restrain_openrlhf.commands.options import to_folder
from restrain_openrlhf.data.identity import ADAPTER, PATTERNS, model_fingerprint, refuse_incomplete
from restrain_openrlhf.data.outputs import output_folder, write_whole
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.folder import CONTENTS, VOTES_BEFORE, RunFolder
from restrain_openrlhf.records.inputs import GOLD_ANSWERS
from restrain_openrlhf.records.metrics import read_held_out

CARD, TEMPLATE = "README.md", Path(__file__).with_name("publish.md.j2")
TAG = "restrain-openrlhf"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# Where transformers and peft note the folder that a model was loaded from.
LOADED_FROM = re.compile(r'("(?:_name_or_path|name_or_path|base_model_name_or_path)": )"[^"]*"')
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain train`.")],
    out: Annotated[Path | None, to_folder("Folder to write.", show_default="RUN/hub")] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Hub id of the base model, if training read it from a folder."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="What the model will be called on the hub.", show_default="OWNER/RUN"),
    ] = None,
) -> None:
    """Write a run's model and its card into a folder for the Hugging Face hub. Push it with `hf upload`.

    The card has the accuracies that `restrain eval` wrote into RUN/evaluation, if it is there.
    """
    for option, value in (("--name", name), ("--base-model", base_model)):
        if value is not None and not HUB_ID.fullmatch(value):
            raise ConfigError(f"{option} {value!r}: is not a name on the hub. Give OWNER/NAME.")
    found = finished_run(run)
    folder, called = output_folder(out or found.path / "hub"), name or f"OWNER/{found.path.name}"
    if folder.exists():
        raise ConfigError(f"--out {folder}: exists. Remove it, or name another folder.")
    write_folder(found, folder, called, base_model, measured_accuracies(found))
    typer.echo(f"folder: {folder}\nRead it, then push it: hf upload {called} {folder}")


def finished_run(path: Path) -> RunFolder:
    """The finished run in a folder of `restrain train`. Raises RunError for another, ConfigError for cut weights."""
    run = RunFolder(path.absolute())
    if any((folder / VOTES_BEFORE).exists() for folder in (run.path, run.path.parent)):
        raise RunError(
            f"{path}: was written by `test-time adapt`. The model that gave its answers is `chosen_model` in "
            "result.json; push that folder with `hf upload`."
        )
    if not run.resolved.exists():
        raise RunError(f"{path}: holds no run. Give the folder of `restrain train`.")
    if (completion := run.completion()) and completion.chosen_step == 0:
        raise RunError(f"{path}: has no model but the base model. {completion.ending}")
    if not (completion and run.trained.is_dir()):
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    refuse_incomplete(run.trained)
    return run


def measured_accuracies(run: RunFolder) -> list[Result]:
    """The results in the run's folder `evaluation`. Raises RunError for those of another model."""
    folder = run.path / "evaluation"
    results = load_results(folder) if folder.is_dir() else []
    for how in (result.provenance for result in results):
        if how.model_fingerprint != model_fingerprint(str(run.trained)):
            raise RunError(
                f"{how.benchmark} was evaluated with another model ({how.model}). Run `restrain eval` on it."
            )
    return results


def write_folder(run: RunFolder, out: Path, name: str, base_id: str | None, evaluations: Sequence[Result]) -> None:
    """Write the whole folder or none of it. Raises RunError for private words in the files to publish."""
    trained_from = str(run.flags()["actor.model_name_or_path"])
    base = base_id or (trained_from if is_hub_id(trained_from) else None)
    partial, shown = out.with_name(f".{out.name}.partial"), base or Path(trained_from).name
    shutil.rmtree(partial, ignore_errors=True)
    for folder in ("", ADAPTER):
        _copy_files(run.trained / folder, partial / folder, shown)
    front = {"model_name": name, "base_model": base, **_licence(trained_from, base)}
    write_whole(partial / CARD, card_text(run, front, shown, evaluations))
    refuse_private(partial, run.path)
    refuse_incomplete(partial)
    partial.rename(out)


def _copy_files(source: Path, out: Path, base: str) -> None:
    """Copy a model's files, weights as links where the file system can; JSON files name `base` as their origin."""
    for path in sorted({path for pattern in (*PATTERNS, "*.bin") for path in source.glob(pattern) if path.is_file()}):
        out.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            text = path.read_text(encoding="utf-8")
            write_whole(out / path.name, LOADED_FROM.sub(lambda found: found[1] + json.dumps(base), text))
            continue
        try:
            os.link(path.resolve(), out / path.name)
        except OSError:
            shutil.copyfile(path, out / path.name)


def _licence(model: str, hub_id: str | None) -> dict[str, Any]:
    """The licence in the front matter of the base model's card, of its folder or the hub, under the hub's keys."""
    import httpx  # noqa: PLC0415 - see data/identity.py
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    card = Path(model) / CARD
    if place := card if card.exists() else hub_id:
        with suppress(httpx.HTTPError, OSError):
            found = ModelCard.load(place, ignore_metadata_errors=True).data.to_dict()
            return {key: found[key] for key in ("license", "license_name", "license_link") if found.get(key)}
    return {"license": "unknown"}


def card_text(run: RunFolder, front: Mapping[str, Any], shown: str, evaluations: Sequence[Result]) -> str:
    """The model card. `shown` names the base model; `front` begins the front matter, under the hub's keys."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData  # noqa: PLC0415 - costs a second

    record = run.record()
    prompts, method = str(run.flags().get("data.prompt_dataset") or ""), record["method"]
    beside = Path(prompts).with_suffix(".about.json")
    about = Prepared.model_validate_json(beside.read_bytes()) if beside.is_file() else None
    source = re.split(r" \(|,", about.source)[0] if about else prompts
    # Accuracies in per cent, as the hub's model-index has them.
    measured = [
        EvalResult("text-generation", how.benchmark, how.title, metric, round(100 * value, 1))
        for how, scores in ((each.provenance, each.scores) for each in evaluations)
        for metric, value in (("pass@1", scores.pass_at_1), (f"maj@{how.n}", scores.maj_at_n))
    ]
    data = ModelCardData(
        **front,
        datasets=[source] if is_hub_id(source) else None,
        eval_results=measured or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[TAG, "reinforcement-learning", method["name"], run.kind.name],
    )
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        run=run,
        name=front["model_name"],
        base=shown,
        version=version(TAG),
        method=method,
        needs_gold=build(parse_settings({"name": method["name"]})).needs_gold,
        labelled=record.get(CONTENTS, {}).get(GOLD_ANSWERS),
        about=about,
        prompts=prompts if is_hub_id(prompts) else Path(prompts).name,
        has_adapter=(run.trained / ADAPTER).is_dir(),
        evaluations=evaluations,
        held_out=read_held_out(run.path),
    )
    return str(card) + "\n"


def is_hub_id(text: str) -> bool:
    """Whether a text is an id on the hub rather than a file's name."""
    return bool(HUB_ID.fullmatch(text)) and not Path(text).suffix.startswith(".json") and not Path(text).exists()


def refuse_private(folder: Path, run: Path) -> None:
    """Raises RunError if a file to publish contains a path of this machine or a secret of the environment."""
    words = {str(path): f"the path {path}" for path in (run, Path.home(), Path.cwd()) if len(path.parts) > 2}  # noqa: PLR2004
    words |= {v: f"the value of {name}" for name, v in os.environ.items() if SECRETS.search(name) and len(v) > 6}  # noqa: PLR2004
    for path in sorted(folder.rglob("*")):
        text = path.read_text(encoding="utf-8") if path.suffix in (".md", ".json", ".jinja", ".py", ".txt") else ""
        for what in (what for word, what in words.items() if word in text):
            raise RunError(f"{path}: holds {what}, which would be published. Remove it there, and publish again.")
