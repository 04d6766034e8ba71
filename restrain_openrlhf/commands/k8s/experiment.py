"""One configuration as the cluster runs it: its layout, passes, benchmarks, and its files as the pods see them."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from restrain_openrlhf.config.checks import flags_on_nodes
from restrain_openrlhf.config.documents import dump_yaml
from restrain_openrlhf.config.gpu_layout import LONGEST_PREFIX, Layout, NodeShape, plan, run_name
from restrain_openrlhf.config.host_flags import Flags
from restrain_openrlhf.config.yaml_file import EngineLimits, RunConfig, load_run_config
from restrain_openrlhf.data.benchmarks import BENCHMARKS, PAPER_BENCHMARKS, benchmark_words, split_word
from restrain_openrlhf.data.sources import TRAINING_SETS
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.folder import adapts_at_test_time
from restrain_openrlhf.reference.offline_pass import OfflineOptions, own_options
from restrain_openrlhf.reference.sampling_pass import Shard

WORK = PurePosixPath("/mnt/work")
PATH_FLAGS = ("actor.model_name_or_path", "data.prompt_dataset", "eval.dataset")
# Options that change where and how fast a pass is drawn, but not what is drawn.
NOT_DRAWN = {"out", "shard", "tensor_parallel_size", *EngineLimits.model_fields}
BENCHMARKS_IN_POD = "/mnt/work/data/benchmarks"
PROMPT_FILE = re.compile(r"(/.+)/([\w-]+)(?:\.(\d+))?(\.supervised)?\.jsonl")


@dataclass(frozen=True)
class SharedPass:
    """An offline pass whose files are named by what it draws, so that experiments that draw the same share it.

    It is drawn in `shards` parts; the run reads the first `kept` rollouts of each prompt.
    """

    options: OfflineOptions
    shards: int
    kept: int

    @property
    def key(self) -> str:
        """A hash that differs if the model, the prompts, the sampling, the number of rollouts or of parts differs."""
        drawn = self.options.model_dump(mode="json", exclude=NOT_DRAWN, exclude_defaults=True)
        text = json.dumps({**drawn, "n": self.options.n, "shards": self.shards}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def file(self) -> PurePosixPath:
        """The file of the whole pass."""
        parts = (PurePosixPath(self.options.prompts).stem, PurePosixPath(self.options.model).name.lower(), self.key)
        return WORK / "passes" / re.sub(r"[^\w.-]+", "-", f"{'.'.join(parts)}.n{self.options.n}.jsonl")

    @property
    def parts(self) -> list[PurePosixPath]:
        """The files that the shards write. With one shard it is the whole pass, which merging checks and keeps."""
        return [Shard(index, self.shards).path(self.file) for index in range(self.shards)]

    @property
    def is_cut(self) -> bool:
        return self.kept < self.options.n

    @property
    def reference(self) -> PurePosixPath:
        """The file that the run reads: the whole pass, or the first rollouts of it."""
        return self.file.with_name(f"{self.file.stem}.first-{self.kept}.jsonl") if self.is_cut else self.file


@dataclass(frozen=True)
class Experiment:
    """Everything that the manifests depend on. `document` is the configuration file in the pods.

    `offline` is the offline pass to be drawn. It is None if the run reads none, or reads one that is on a volume
    already. `benchmarks` are words of `restrain eval`, with paths on a volume; without any there is no evaluation.
    """

    name: str
    job: Literal["train", "test-time"]
    document: dict[str, Any]
    flags: Flags
    layout: Layout
    shards: int
    offline: SharedPass | None
    benchmarks: tuple[str, ...]
    # None keeps the deadline of the base manifests.
    deadline_days: float | None

    @property
    def run_dir(self) -> str:
        """The run's folder on the work volume."""
        return str(self.document["run_dir"])

    @property
    def model(self) -> str:
        """The base model: a hub id, or a folder on a volume."""
        return str(self.flags["actor.model_name_or_path"])

    @property
    def prompts(self) -> str:
        """The prompt file on a volume."""
        return str(self.flags["data.prompt_dataset"])

    @property
    def fetched(self) -> list[str]:
        """The benchmarks that have no file of the user's."""
        return [word for word in self.benchmarks if "=" not in word]

    @property
    def copied(self) -> list[PurePosixPath]:
        """The files and folders on the volumes that no step makes, so that the user copies them there."""
        reads_own = self.job == "train" and self.offline is None
        own = [
            *([self.model] if self.model.startswith("/") else []),
            *([] if data_words(self.prompts, self.job) else [self.prompts]),
            *filter(None, str(self.flags["eval.dataset"] or "").split(",")),
            *([self.document["reference"]] if reads_own and "reference" in self.document else []),
            *(path for word in self.benchmarks if (path := word.partition("=")[2])),
        ]
        return [PurePosixPath(path) for path in own]

    @property
    def text(self) -> str:
        return dump_yaml(self.document, sort_keys=False, allow_unicode=True, width=120)


def load_experiment(
    path: Path,
    overrides: dict[str, object],
    shape: NodeShape,
    shards: int = 8,
    benchmarks: Sequence[str] = PAPER_BENCHMARKS,
) -> Experiment:
    """Read a configuration as `restrain train` would, and move its paths to the cluster's volumes.

    Raises ConfigError for a wrong configuration, a checkpoint that would never be written or resumed, or a layout that
    does not fit the overlay's nodes or their GPUs.
    """
    config = load_run_config(path, overrides)
    if config.agent is not None:
        agent = config.agent.model_copy(update={"path": Path(on_volume(config.agent.path))})
        config = config.model_copy(update={"agent": agent})
    test_time = adapts_at_test_time(config)
    document = _document(config)
    flags = flags_on_nodes(config, shape)
    flags |= {name: document["openrlhf"][name] for name in PATH_FLAGS if name in document["openrlhf"]}
    offline = None if test_time else _offline(config, flags, shards)
    document |= {"reference": str(offline.reference)} if offline else {}
    return Experiment(
        name=_name(document["run_dir"], test_time),
        job="test-time" if test_time else "train",
        document=document,
        flags=flags,
        layout=plan(flags, shape),
        shards=shards,
        offline=offline,
        benchmarks=() if test_time else tuple(benchmarks),
        deadline_days=config.deadline_days,
    )


def _offline(config: RunConfig, flags: Flags, shards: int) -> SharedPass | None:
    """The pass to be drawn. None if the method reads none, and if the file is on a volume already."""
    if config.read_reference is None or config.read_reference.is_relative_to("/mnt"):
        return None
    kept = config.reference_n or int(flags["rollout.n_samples_per_prompt"])
    own = {"tensor_parallel_size": 1, **own_options(config)}
    # SharedPass names the file by all other options, so this name is not used.
    options = OfflineOptions.from_flags(flags, out="pass.jsonl", n=max(config.pass_n or kept, kept), **own)
    return SharedPass(options, shards, kept)


def _name(run_dir: str, test_time: bool) -> str:
    """The experiment's name, from its run folder below `runs`, which no other experiment has."""
    folder = PurePosixPath(run_dir)
    root = next((root for root in (WORK / "runs", WORK) if root in folder.parents), PurePosixPath("/mnt"))
    text = str(folder.relative_to(root))
    if not test_time:
        return run_name(text)
    # The job's own name begins with this prefix, so it is taken off a folder's name that has it. Any other folder's
    # name becomes one that is no valid label ("/" at its end), so that run_name adds a hash and the two names differ.
    return run_name(text.removeprefix(LONGEST_PREFIX) if text.startswith(LONGEST_PREFIX) else f"{text}/")


def _document(config: RunConfig) -> dict[str, Any]:
    openrlhf = dict(config.openrlhf)
    for name in ("data.prompt_dataset", "eval.dataset"):
        if sets := openrlhf.get(name):
            openrlhf[name] = ",".join(on_volume(Path(each.strip())) for each in sets.split(","))
    model = str(openrlhf.get("actor.model_name_or_path", ""))
    # A hub id has at most one slash, so anything with more is a folder, even if it does not exist here.
    if Path(model).is_dir() or model.count("/") > 1:
        openrlhf["actor.model_name_or_path"] = on_volume(Path(model))
    reference = {"reference": on_volume(config.read_reference)} if config.read_reference else {}
    # `restrain train` sets `metrics` itself.
    others = config.model_copy(update={"reference": None, "metrics": None}).written()
    run_dir = on_volume(config.run_dir)
    if WORK not in PurePosixPath(run_dir).parents:
        raise ConfigError(
            f"run_dir is {run_dir}, which is no folder on the work volume. Give a path below {WORK}/runs."
        )
    return {"run_dir": run_dir, **reference, **others, "openrlhf": openrlhf}


def on_volume(path: Path) -> str:
    """A local path as the pods see it: unchanged if it is on a volume, else below the work volume.

    Raises ConfigError for a path outside the working folder.
    """
    here = Path.cwd()
    inside = Path(os.path.normpath(here / path))
    if inside.is_relative_to("/mnt"):
        return str(inside)
    if not inside.is_relative_to(here):
        raise ConfigError(f"{path}: is outside the working folder. Give its path on the cluster, such as {WORK}/data.")
    return str(WORK / inside.relative_to(here))


def benchmarks_on_volume(text: str) -> tuple[str, ...]:
    """The words of `--benchmarks`, with paths as the pods see them; without any for `none`.

    Raises ConfigError for a name that is known of no benchmark and has no path, and for a path that is on no volume.
    """
    pairs = [] if text == "none" else [split_word(word) for word in benchmark_words(text)]
    for name, path in pairs:
        if path is None and name not in BENCHMARKS:
            raise ConfigError(
                f"--benchmarks: {name!r} is no known benchmark. Known: {', '.join(BENCHMARKS)}. For a file of your "
                f"own, give {name}=PATH; for no evaluation, none."
            )
    return tuple(f"{name}={on_volume(path)}" if path else name for name, path in pairs)


def data_words(prompts: str, job: str) -> list[str] | None:
    """Arguments of `restrain data` that make this file, by its name; None if it is a file of the user's own.

    Training reads `dapo14k.jsonl`, `dapo14k.6400.jsonl` (its first prompts) or `dapo14k.supervised.jsonl` (with gold).
    Test-time RL reads a benchmark's problems, such as `aime24.jsonl`.
    """
    named = PROMPT_FILE.fullmatch(prompts)
    if named is None:
        return None
    folder, name, first, supervised = named.groups()
    if job == "test-time":
        known = name in BENCHMARKS and not (first or supervised)
        return ["benchmarks", name, "--problems-only", f"--out={folder}"] if known else None
    if name not in TRAINING_SETS or TRAINING_SETS[name].hub is None:
        return None
    cut = [f"--first={first}"] if first else []
    gold = [f"--supervised={prompts}"] if supervised else []
    plain = prompts.replace(supervised, "") if supervised else prompts
    return ["prepare", name, "--keep", *cut, f"--out={plain}", *gold]
