"""What must not be published: local paths, addresses and secrets. Files are cleaned, and then checked."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import SECRET_FLAGS
from restrain_openrlhf.errors import RunError

# Where a run lies, logs and is served, none of which changes its weights; addresses and names of users are among them.
KEYS = frozenset({"run_dir", "metrics", "service", "mlflow"})
FLAGS = ("logger.", "ckpt.", "train.agent_func_path")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
DATA_FILE = re.compile(r".*\.(jsonl?|csv|parquet|ya?ml|pt|py|txt)")
ONE_PATH = re.compile(r"[\w.@+~-]*(/[\w.@+~-]*)+")
ADDRESS = re.compile(r"\w+://[^\s'\"]+")
# Two components at least: </s> and \frac{1}{2}/x are no paths.
LOCAL_PATH = re.compile(r"(?<![\w.:/}])(?:~[\w-]*)?(?:/[\w.@+~-]+){2,}/?")
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")
# What has no words of ours in it, and may be megabytes.
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json"})


def is_hub_id(text: str) -> bool:
    """Whether it can name something on the hub: `data/train.jsonl`, or a folder that is there, does not."""
    return bool(HUB_ID.fullmatch(text)) and not DATA_FILE.fullmatch(text) and not Path(text).exists()


def without_paths(text: str) -> str:
    """A hub id stays; a path becomes its last part; an address goes."""
    if is_hub_id(text):
        return text
    if ONE_PATH.fullmatch(text):
        return Path(text).name
    return LOCAL_PATH.sub(lambda found: Path(found[0]).name, ADDRESS.sub("(an address)", text))


def published_configuration(resolved: Mapping[str, Any], base: str) -> dict[str, Any]:
    """A run's resolved configuration without what is private, with `base` as the model that it was trained from."""
    flags = {
        name: cleaned(value)
        for name, value in resolved["openrlhf"].items()
        if not name.startswith(FLAGS) and name not in SECRET_FLAGS
    }
    others = {key: cleaned(value) for key, value in resolved.items() if key not in KEYS}
    return {**others, "openrlhf": {**flags, "actor.model_name_or_path": base}}


def cleaned(value: Any, clean: Callable[[str], str] = without_paths) -> Any:
    """The value with every text in it cleaned."""
    if isinstance(value, Mapping):
        return {key: cleaned(inner, clean) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner, clean) for inner in value]
    return clean(value) if isinstance(value, str) else value


def clean_json(path: Path, replaced: Mapping[str, str]) -> None:
    """Rewrite a JSON file without local paths; a text that is a key of `replaced` becomes its value."""

    def clean(text: str) -> str:
        # Whole texts alone: a chat template may have anything in it.
        return replaced.get(text, Path(text).name if LOCAL_PATH.fullmatch(text) else text)

    before = json.loads(path.read_text(encoding="utf-8"))
    after = cleaned(before, clean)
    if after != before:
        path.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def refuse_private(folder: Path, run: Path) -> None:
    """Raises RunError where a text to be published has a path of this machine or a secret of the environment in it."""
    paths = {str(path) for path in (run.absolute(), run.resolve(), Path.home(), Path.cwd()) if len(path.parts) > 2}  # noqa: PLR2004
    words = {path: f"the path {path}" for path in sorted(paths)}
    words |= {v: f"the value of {name}" for name, v in os.environ.items() if SECRETS.search(name) and len(v) > 6}  # noqa: PLR2004
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".md", ".json", ".jinja", ".py", ".txt") or path.name in VOCABULARIES:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for what in (what for word, what in words.items() if word in text):
            raise RunError(
                f"{path}: holds {what}, which would be published. Remove it from the file of the model or of the "
                "run that it comes from, and publish again."
            )
