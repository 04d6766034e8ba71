"""`restrain publish`: a run's model as a folder for the Hugging Face hub, with its card and without private data."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from restrain_openrlhf.data.identity import file_digest, model_fingerprint, refuse_incomplete
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.data.prepare import Prepared
from restrain_openrlhf.errors import ConfigError, RunError
from restrain_openrlhf.evaluation.result import Result, load_results
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.folder import CONTENTS, RunFolder
from restrain_openrlhf.records.inputs import EXTRACTOR, GOLD_ANSWERS
from restrain_openrlhf.records.metrics import read_held_out

CARD, TEMPLATE = "README.md", Path(__file__).with_name("publish.md.j2")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# Where transformers and peft note the folder that a model was loaded from.
LOADED_FROM = re.compile(r'("(?:_name_or_path|name_or_path|base_model_name_or_path)": )"[^"]*"')
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `restrain train`.")],
    name: Annotated[str, typer.Option(help="What the model will be called on the hub.")] = "OWNER/NAME",
) -> None:
    """Write a run's model and its card into RUN/hub, a folder for the Hugging Face hub. Push it with `hf upload`.

    The card has the accuracies that `restrain eval` wrote into RUN/evaluation, if it is there.
    """
    found = finished_run(run)
    if (folder := found.path / "hub").exists():
        raise ConfigError(f"{folder}: exists. Remove it, and publish again.")
    write_folder(found, folder, name, measured_accuracies(found))
    typer.echo(f"folder: {folder}\nRead it, then push it: hf upload {name} {folder}")


def finished_run(path: Path) -> RunFolder:
    """The finished run in a folder of `restrain train`. Raises RunError for another, ConfigError for cut weights."""
    run = RunFolder(path.absolute())
    if (completion := run.completion()) and completion.chosen_step == 0:
        raise RunError(f"{path}: has no model but the base model. {completion.ending}")
    if not (completion and run.trained.is_dir()):
        raise RunError(f"{path}: holds no run that has ended. Give the folder of `restrain train`, or finish the run.")
    refuse_incomplete(run.trained)
    return run


def measured_accuracies(run: RunFolder) -> list[Result]:
    """The results in the run's folder `evaluation`. Raises RunError for those of another model."""
    folder = run.path / "evaluation"
    results = load_results(folder) if folder.is_dir() else []
    for how in (result.provenance for result in results):
        if how.model_fingerprint != model_fingerprint(str(run.trained)):
            raise RunError(f"{how.benchmark} was evaluated with {how.model}. Run `restrain eval` on {run.trained}.")
    return results


def write_folder(run: RunFolder, out: Path, name: str, evaluations: Sequence[Result]) -> None:
    """Write the whole folder or none of it. Raises RunError for private words in the files to publish."""
    base = str(run.flags()["actor.model_name_or_path"])
    shown = json.dumps(base if is_hub_id(base) else Path(base).name)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(run.trained, partial, ignore=shutil.ignore_patterns(CARD))
    for path in partial.rglob("*.json"):
        text = LOADED_FROM.sub(lambda found: found[1] + shown, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
    write_whole(partial / CARD, card_text(run, name, base, evaluations))
    refuse_private(partial, run.path)
    partial.rename(out)


def _licence(model: str) -> dict[str, Any]:
    """The licence in the front matter of the base model's card, in its folder or on the hub, under the hub's keys."""
    import httpx  # noqa: PLC0415 - see data/identity.py
    from huggingface_hub import ModelCard  # noqa: PLC0415 - costs a second

    card = Path(model) / CARD
    with suppress(httpx.HTTPError, OSError, ValueError):
        found = ModelCard.load(card if card.exists() else model, ignore_metadata_errors=True).data.to_dict()
        return {key: found[key] for key in ("license", "license_name", "license_link") if found.get(key)}
    return {"license": "unknown"}


def card_text(run: RunFolder, name: str, base: str, evaluations: Sequence[Result]) -> str:
    """The card of a model that will be called `name`; `base` is its base model's hub id, or its folder."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData  # noqa: PLC0415 - costs a second

    record = run.record()
    prompts, method = str(run.flags().get("data.prompt_dataset") or ""), record["method"]
    beside = Path(prompts).with_suffix(".about.json")
    digest = record.get(CONTENTS, {}).get("data.prompt_dataset")
    is_another = digest is not None and Path(prompts).is_file() and digest != f"sha256:{file_digest(Path(prompts))}"
    about = Prepared.model_validate_json(beside.read_bytes()) if beside.is_file() and not is_another else None
    source = re.split(r" \(|,", about.source)[0] if about else prompts
    # Accuracies in per cent, as the hub's model-index has them.
    measured = [
        EvalResult("text-generation", each.provenance.benchmark, each.provenance.title, metric, round(100 * value, 1))
        for each in evaluations
        for metric, value in (("pass@1", each.scores.pass_at_1), (f"maj@{each.provenance.n}", each.scores.maj_at_n))
    ]
    data = ModelCardData(
        model_name=name,
        base_model=base if is_hub_id(base) else None,
        **_licence(base),
        datasets=[source] if is_hub_id(source) else None,
        eval_results=measured or None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["restrain-openrlhf", "reinforcement-learning", method["name"], run.kind.name],
    )
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        run=run,
        name=name,
        base=base if is_hub_id(base) else Path(base).name,
        version=version("restrain-openrlhf"),
        method=method,
        needs_gold=build(parse_settings({"name": method["name"]})).needs_gold,
        labelled=record.get(CONTENTS, {}).get(GOLD_ANSWERS),
        reader=record.get(CONTENTS, {}).get(EXTRACTOR, "(not recorded)").removeprefix("version "),
        about=about,
        prompts=prompts if is_hub_id(prompts) else Path(prompts).name,
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
