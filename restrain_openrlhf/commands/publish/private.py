"""Keeps local paths, addresses and secrets from being published: files are cleaned, and then checked."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import SECRET_FLAGS
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import RunError

# Settings of where a run is kept, logged and served. They do not change its weights, and hold addresses and user names.
KEYS = frozenset({"run_dir", "metrics", "service"})
FLAGS = ("logger.", "ckpt.", "train.agent_func_path")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
DATA_FILE = re.compile(r".*\.(jsonl?|csv|parquet|ya?ml|pt|py|txt)")
ONE_PATH = re.compile(r"[\w.@+~-]*(/[\w.@+~-]*)+")
ADDRESS = re.compile(r"\w+://[^\s'\"]+")
# A path has two components at least, since </s> and \frac{1}{2}/x are no paths.
LOCAL_PATH = re.compile(r"(?<![\w.:/}])(?:~[\w-]*)?(?:/[\w.@+~-]+){2,}/?")
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")
# Files of the tokenizer, which hold no text of ours and may have megabytes.
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json"})


def is_hub_id(text: str) -> bool:
    """Whether a text can be an id on the hub, unlike a data file's name or an existing folder."""
    return bool(HUB_ID.fullmatch(text)) and not DATA_FILE.fullmatch(text) and not Path(text).exists()


def without_paths(text: str) -> str:
    """The text with each path cut to its last component and without addresses. A hub id is unchanged."""
    if is_hub_id(text):
        return text
    if ONE_PATH.fullmatch(text):
        return Path(text).name
    return LOCAL_PATH.sub(lambda found: Path(found[0]).name, ADDRESS.sub("(an address)", text))


def published_configuration(resolved: Mapping[str, Any], base: str) -> dict[str, Any]:
    """A run's resolved configuration without private settings, and with `base` as its base model."""
    flags = {
        name: cleaned(value)
        for name, value in resolved["openrlhf"].items()
        if not name.startswith(FLAGS) and name not in SECRET_FLAGS
    }
    others = {key: cleaned(value) for key, value in resolved.items() if key not in KEYS}
    return {**others, "openrlhf": {**flags, "actor.model_name_or_path": base}}


def cleaned(value: Any, clean: Callable[[str], str] = without_paths) -> Any:
    """The value with `clean` applied to every string in it."""
    if isinstance(value, Mapping):
        return {key: cleaned(inner, clean) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner, clean) for inner in value]
    return clean(value) if isinstance(value, str) else value


def clean_json(path: Path, replaced: Mapping[str, str]) -> None:
    """Rewrite a JSON file without local paths. A string that is a key of `replaced` becomes its value."""

    def clean(text: str) -> str:
        # Only whole strings are replaced, since a chat template may contain anything.
        return replaced.get(text, Path(text).name if LOCAL_PATH.fullmatch(text) else text)

    before = json.loads(path.read_text(encoding="utf-8"))
    after = cleaned(before, clean)
    if after != before:
        write_whole(path, json.dumps(after, indent=2, ensure_ascii=False) + "\n")


def refuse_private(folder: Path, run: Path) -> None:
    """Raises RunError if a file to publish contains a path of this machine or a secret of the environment."""
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
