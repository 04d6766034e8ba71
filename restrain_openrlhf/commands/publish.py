"""`restrain publish`: a run's model as a folder for the Hugging Face hub, with its card and without private data."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
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
from restrain_openrlhf.records.folder import VOTES_BEFORE, RunFolder
from restrain_openrlhf.records.metrics import read_held_out

# A folder with this file was written by this command, and may be replaced.
CONFIGURATION, CARD, TEMPLATE = "restrain.json", "README.md", Path(__file__).with_name("publish.md.j2")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
NOTICES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")
# Where transformers and peft note the folder that a model was loaded from.
LOADED_FROM = ("_name_or_path", "name_or_path", "base_model_name_or_path")
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain train`.")],
    out: Annotated[Path | None, to_folder("Folder to write.", show_default="RUN/hub")] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of `restrain eval` for this model. Repeatable.", show_default="RUN/evaluation, if it exists"
        ),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Hub id of the base model, if training read it from a folder."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="What the model will be called on the hub.", show_default="OWNER/RUN"),
    ] = None,
) -> None:
    """Write a run's model and its card into a folder for the Hugging Face hub. Push it with `hf upload`."""
    for option, value in (("--name", name), ("--base-model", base_model)):
        if value is not None and not HUB_ID.fullmatch(value):
            raise ConfigError(f"{option} {value!r}: is not a name on the hub. Give OWNER/NAME.")
    found = finished_run(run)
    folder, called = output_folder(out or found.path / "hub"), name or f"OWNER/{found.path.name}"
    write_folder(found, folder, called, base_model, measured_accuracies(found, evaluation or ()))
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
    if not (run.completed.exists() and run.model.is_dir()):
        raise RunError(f"{path}: the run has not ended. Run its command again to finish it, then publish it.")
    refuse_incomplete(run.model)
    return run


def measured_accuracies(run: RunFolder, folders: Sequence[Path]) -> list[Result]:
    """Results of `restrain eval` for the run's model. Raises RunError for those of another model."""
    own = run.path / "evaluation"
    results = [result for folder in folders or [own] * own.is_dir() for result in load_results(folder)]
    for how in (result.provenance for result in results):
        if how.model_fingerprint != model_fingerprint(str(run.model)):
            raise RunError(
                f"{how.benchmark} was evaluated with another model ({how.model}). Run `restrain eval` on it."
            )
    return results


def write_folder(run: RunFolder, out: Path, name: str, base_id: str | None, evaluations: Sequence[Result]) -> None:
    """Write the whole folder, replacing an earlier one.

    Raises ConfigError if `out` is another kind of folder, and RunError for private words in the files to publish.
    """
    if out.exists() and not (out / CONFIGURATION).exists():
        raise ConfigError(f"--out {out}: exists, and was not written by `restrain publish`. Name another folder.")
    trained_from = str(run.flags()["actor.model_name_or_path"])
    base = base_id or (trained_from if is_hub_id(trained_from) else None)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shown = base or Path(trained_from).name
    for folder in ("", ADAPTER):
        _copy_files(run.model / folder, partial / folder, shown)
    origin = _files_of_base(trained_from, base)
    for notice in (path for pattern in NOTICES if origin for path in origin.glob(pattern)):
        shutil.copyfile(notice, partial / notice.name)
    write_whole(partial / CONFIGURATION, json.dumps(without_private(run, shown), indent=2) + "\n")
    write_whole(partial / CARD, card_text(run, name, base, shown, origin, evaluations))
    refuse_private(partial, run.path)
    refuse_incomplete(partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def card_text(
    run: RunFolder, name: str, base: str | None, shown: str, origin: Path | None, evaluations: Sequence[Result]
) -> str:
    """The model card. `base` is the base model's id on the hub, and `origin` the folder with its own card."""
    from huggingface_hub import ModelCard, ModelCardData  # noqa: PLC0415 - costs a second

    flags, method, held_out = run.flags(), run.record()["method"], read_held_out(run.path)
    prompts = str(flags.get("data.prompt_dataset") or "")
    beside = Path(prompts).with_suffix(".about.json")
    about = Prepared.model_validate_json(beside.read_bytes()) if beside.is_file() else None
    source = about.source.split(" (")[0].split(",")[0] if about else prompts
    data = ModelCardData(
        base_model=base,
        datasets=[source] if is_hub_id(source) else None,
        **_licence(origin),
        model_name=name,
        eval_results=[*_eval_results(evaluations)] or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["restrain-openrlhf", "reinforcement-learning", method["name"], run.kind.name],
    )
    best = max(held_out, key=lambda row: row.pass_at_1, default=None)
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        name=name,
        base=shown,
        version=version("restrain-openrlhf"),
        method={key: value for key, value in method.items() if value is not None},
        reads_gold=build(parse_settings({"name": method["name"]})).reads_gold,
        kind=run.kind,
        reads=" ".join(run.kind.reads.split()).replace("|", "\\|").replace("<", "&lt;"),
        columns=", ".join(f"`{column}`" for column in sorted(run.kind.row_columns())),
        about=about,
        prompts=prompts if is_hub_id(prompts) else Path(prompts).name,
        steps=(done := run.completion()) and done.steps,
        has_adapter=(run.model / ADAPTER).is_dir(),
        chat=flags.get("data.apply_chat_template"),
        template=flags.get("data.input_template") or "{}",
        max_new_tokens=flags.get("rollout.max_new_tokens") or 1024,
        evaluations=evaluations,
        held_out=[row for row in held_out if row in (held_out[0], best, held_out[-1])],
    )
    return str(card) + "\n"


def _eval_results(evaluations: Sequence[Result]) -> Iterator[Any]:
    """Accuracies in per cent as the hub's model-index has them."""
    from huggingface_hub import EvalResult  # noqa: PLC0415 - costs a second

    for how, scores in ((each.provenance, each.scores) for each in evaluations):
        for metric, value in (("pass@1", scores.pass_at_1), (f"maj@{how.n}", scores.maj_at_k[how.n])):
            yield EvalResult("text-generation", how.benchmark, how.title, metric, round(100 * value, 1))


def _licence(origin: Path | None) -> dict[str, Any]:
    """The licence in the front matter of the base model's card, under the hub's keys."""
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    if origin is None or not (origin / CARD).exists():
        return {"license": "unknown"}
    found = ModelCard.load(origin / CARD, ignore_metadata_errors=True).data.to_dict()
    return {key: found[key] for key in ("license", "license_name", "license_link") if found.get(key)}


def _files_of_base(model: str, hub_id: str | None) -> Path | None:
    """A folder with the base model's card and notices; None where neither a folder nor the hub has them."""
    import httpx  # noqa: PLC0415 - see data/identity.py
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - costs a second
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    if (Path(model) / CARD).exists() or hub_id is None:
        return Path(model) if Path(model).is_dir() else None
    try:
        return Path(snapshot_download(hub_id, allow_patterns=[CARD, *NOTICES]))
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError, OSError):
        return None


def _copy_files(source: Path, out: Path, base: str) -> None:
    """Copy a model's files, weights as links where the file system can; JSON files name `base` as their origin."""
    for path in sorted({path for pattern in (*PATTERNS, "*.bin") for path in source.glob(pattern) if path.is_file()}):
        out.mkdir(parents=True, exist_ok=True)
        try:
            (os.link if path.suffix in (".safetensors", ".bin") else shutil.copyfile)(path.resolve(), out / path.name)
        except OSError:
            shutil.copyfile(path, out / path.name)
        content = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        if isinstance(content, dict) and (noted := [key for key in LOADED_FROM if key in content]):
            write_whole(out / path.name, json.dumps(content | dict.fromkeys(noted, base), indent=2) + "\n")


def is_hub_id(text: str) -> bool:
    """Whether a text is an id on the hub rather than a file's name."""
    return bool(HUB_ID.fullmatch(text)) and not Path(text).suffix.startswith(".json") and not Path(text).exists()


def without_private(run: RunFolder, base: str) -> dict[str, Any]:
    """What a run was trained with: method, kind of answer and OpenRLHF's flags, without paths and addresses."""
    record = run.record()
    flags = {name: value for name, value in run.flags().items() if not name.startswith(("logger.", "ckpt."))}
    blocks = {"method": record["method"], "answers": run.kind.model_dump(mode="json"), "openrlhf": flags}
    public = {
        name: {key: value for key, value in block.items() if _is_public(key, value)} for name, block in blocks.items()
    }
    return {**public, "openrlhf": {**public["openrlhf"], "actor.model_name_or_path": base}}


def _is_public(key: str, value: Any) -> bool:
    """Whether a setting is neither a path nor an address. The template of prompts may have a slash in its text."""
    if isinstance(value, Mapping | list):
        return all(_is_public(key, each) for each in (value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, str) or key == "data.input_template" or "/" not in value or is_hub_id(value)


def refuse_private(folder: Path, run: Path) -> None:
    """Raises RunError if a file to publish contains a path of this machine or a secret of the environment."""
    words = {str(path): f"the path {path}" for path in (run, Path.home(), Path.cwd()) if len(path.parts) > 2}  # noqa: PLR2004
    words |= {v: f"the value of {name}" for name, v in os.environ.items() if SECRETS.search(name) and len(v) > 6}  # noqa: PLR2004
    for path in sorted(folder.rglob("*")):
        text = path.read_text(encoding="utf-8") if path.suffix in (".md", ".json", ".jinja", ".py", ".txt") else ""
        for what in (what for word, what in words.items() if word in text):
            raise RunError(f"{path}: holds {what}, which would be published. Remove it there, and publish again.")
