"""The offline pass of an experiment on a cluster, in files named by what it draws: who draws the same, shares it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Self

from restrain_openrlhf.config.blocks import EngineLimits
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.reference.offline_pass import OfflineOptions
from restrain_openrlhf.reference.sampling_pass import Shard

FOLDER = PurePosixPath("/mnt/work/passes")
# Where, by how many and how many at a time a pass is drawn, not what.
NOT_DRAWN = {"out", "shard", "tensor_parallel_size", *EngineLimits.model_fields}


@dataclass(frozen=True)
class SharedPass:
    """`options` of the whole pass, drawn in `shards` parts; the run reads the first `kept` rollouts of each prompt."""

    options: OfflineOptions
    shards: int
    kept: int

    @classmethod
    def of(cls, flags: Mapping[str, Any], limits: EngineLimits, kept: int, rollouts: int, shards: int) -> Self:
        """`rollouts` per prompt with the prompts, template and sampling of these flags (dotted names), by engines
        with these limits.

        Raises ConfigError for fewer rollouts than are kept, or a value that the offline pass does not take.
        """
        if rollouts < kept:
            raise ConfigError(
                f"The offline pass draws {rollouts} rollouts per prompt, and the run reads {kept}. Give --reference-n "
                f"{kept} or more, or lower reference_n."
            )
        options = OfflineOptions.from_flags(
            flags, out="pass.jsonl", n=rollouts, tensor_parallel_size=1, **limits.options()
        )
        shared = cls(options, shards, kept)
        return cls(options.model_copy(update={"out": shared.file}), shards, kept)

    @property
    def key(self) -> str:
        """Differs between passes that differ in the model, the prompts, the sampling, the rollouts or the parts."""
        drawn = self.options.model_dump(mode="json", exclude=NOT_DRAWN, exclude_defaults=True)
        text = json.dumps({**drawn, "n": self.options.n, "shards": self.shards}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def file(self) -> PurePosixPath:
        """The whole pass."""
        parts = (PurePosixPath(self.options.prompts).stem, PurePosixPath(self.options.model).name.lower(), self.key)
        return FOLDER / re.sub(r"[^\w.-]+", "-", f"{'.'.join(parts)}.n{self.options.n}.jsonl")

    @property
    def parts(self) -> list[PurePosixPath]:
        """The files that the shards write; with one shard the whole pass itself, which merging checks and keeps."""
        return [Shard(index, self.shards).path(self.file) for index in range(self.shards)]

    @property
    def is_cut(self) -> bool:
        """Whether the run reads a part of the pass."""
        return self.kept < self.options.n

    @property
    def reference(self) -> PurePosixPath:
        """What the run reads."""
        return self.file.with_name(f"{self.file.stem}.first-{self.kept}.jsonl") if self.is_cut else self.file

    def merge_words(self) -> list[str]:
        """Of `restrain merge-reference`."""
        return [f"--out={self.file}", *map(str, self.parts)]

    def subset_words(self) -> list[str]:
        """Of `restrain subset-reference`."""
        return [f"--out={self.reference}", f"--n={self.kept}", str(self.file)]
