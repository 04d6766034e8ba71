"""What must not be published: local paths, addresses and secrets. Files are cleaned, and then checked."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from restrain_openrlhf.config.secrets import SECRET_FLAGS
from restrain_openrlhf.errors import RunError

# Where a run lies, logs and is served, none of which changes its weights; addresses and names of users are among them.
KEYS = frozenset({"run_dir", "metrics", "service", "mlflow"})
FLAGS = ("logger.", "ckpt.", "train.agent_func_path")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
DATA_FILE = re.compile(r".*\.(jsonl?|csv|parquet|ya?ml|pt|py|txt)")
ADDRESS = re.compile(r"\w+://[^\s'\"]+")
# Two components at least: </s> and \frac{1}{2}/x are no paths.
LOCAL_PATH = re.compile(r"(?<![\w.:/}])(?:~[\w-]*)?(?:/[\w.@+~-]+){2,}/?")
SECRETS = re.compile(r"(TOKEN|API_KEY|PASSWORD|SECRET)$")
# What has no words of ours in it, and may be megabytes.
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json"})


def published_configuration(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A run's resolved configuration without what is private. Paths are reduced to their last part."""
    flags = {
        name: value
        for name, value in resolved.get("openrlhf", {}).items()
        if not name.startswith(FLAGS) and name not in SECRET_FLAGS
    }
    others = {key: value for key, value in resolved.items() if key not in KEYS and key != "openrlhf"}
    return {name: cleaned(value) for name, value in {**others, "openrlhf": flags}.items()}


def cleaned(value: Any) -> Any:
    """The value with the paths and addresses in its texts reduced."""
    if isinstance(value, Mapping):
        return {key: cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner) for inner in value]
    return without_paths(value) if isinstance(value, str) else value


def without_paths(text: str) -> str:
    """A hub id stays; a path becomes its last part; an address goes."""
    if Path(text).name and (DATA_FILE.fullmatch(text) or text.startswith(("./", "../"))):
        return Path(text).name
    if HUB_ID.fullmatch(text) and not Path(text).exists():
        return text
    if "/" in text and not re.search(r"[\s{}<>\\]", text) and "://" not in text:
        return Path(text).name
    return LOCAL_PATH.sub(lambda found: Path(found[0]).name, ADDRESS.sub("(an address)", text))


def clean_json(path: Path, replaced: Mapping[str, str]) -> None:
    """Rewrite a JSON file without local paths; a text that is a key of `replaced` becomes its value."""
    before = json.loads(path.read_text(encoding="utf-8"))
    after = _without_local(before, replaced)
    if after != before:
        path.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _without_local(value: Any, replaced: Mapping[str, str]) -> Any:
    """Whole texts alone: a chat template may have anything in it."""
    if isinstance(value, dict):
        return {key: _without_local(inner, replaced) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_local(inner, replaced) for inner in value]
    if not isinstance(value, str):
        return value
    return replaced.get(value, Path(value).name if LOCAL_PATH.fullmatch(value) else value)


def refuse_private(folder: Path, run: Path) -> None:
    """Raises RunError where a text to be published has a path of this machine or a secret of the environment in it."""
    words = _private_words(run)
    for path in text_files(folder):
        text = path.read_text(encoding="utf-8", errors="replace")
        for what, word in words:
            if word in text:
                raise RunError(
                    f"{path}: holds {what}, which would be published. Remove it from the file of the model or of the "
                    "run that it comes from, and publish again."
                )


def text_files(folder: Path) -> Iterable[Path]:
    """The files that are published with words in them."""
    found = (path for pattern in ("*.md", "*.json", "*.jinja", "*.py", "*.txt") for path in folder.rglob(pattern))
    return sorted(path for path in found if path.name not in VOCABULARIES and not path.name.endswith(".index.json"))


def _private_words(run: Path) -> list[tuple[str, str]]:
    home, here = Path.home(), Path.cwd()
    paths = {str(path) for path in (run.absolute(), run.resolve(), home, here) if len(path.parts) > 2}  # noqa: PLR2004
    secrets = [(name, value) for name, value in os.environ.items() if SECRETS.search(name) and len(value) > 6]  # noqa: PLR2004
    return [
        *(("the path " + path, path) for path in sorted(paths)),
        *((f"the value of {name}", v) for name, v in secrets),
    ]
