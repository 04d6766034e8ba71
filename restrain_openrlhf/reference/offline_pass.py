"""Puts an offline pass together: prompts, provenance and engine, from what a user typed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from restrain_openrlhf import __version__
from restrain_openrlhf.answers import EXTRACTOR_VERSION
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.hook.devices import detect
from restrain_openrlhf.hook.offline_engine import RolloutEngine, Sampling, refuse_long_prompts
from restrain_openrlhf.hook.prompts import Prompt, PromptSource, load_prompts, prompt_set_hash, template_identity
from restrain_openrlhf.reference.artifact import ReferenceProvenance, ReferenceRow
from restrain_openrlhf.sampling_pass import SamplingPass, Shard, prompts_per_chunk


@dataclass(frozen=True)
class OfflinePass:
    """One shard of one pass, checked and ready to run."""

    model: str
    sampling: Sampling
    shard: Shard
    prompts: list[Prompt]
    provenance: ReferenceProvenance
    tokenizer: object

    @classmethod
    def prepare(cls, model: str, source: PromptSource, sampling: Sampling, index: int, count: int) -> "OfflinePass":
        """Load and check everything but the engine.

        Raises ConfigError for a model that does not exist, DataError for bad prompts or ones that are too long.
        """
        fingerprint = model_fingerprint(model)
        from transformers import AutoTokenizer  # noqa: PLC0415 - costs seconds; bad input is told before

        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=True)
        prompts = load_prompts(source, tokenizer)
        refuse_long_prompts(prompts, tokenizer, sampling)
        provenance = ReferenceProvenance(
            model=model,
            model_fingerprint=fingerprint,
            template=template_identity(source, tokenizer),
            prompt_set_hash=prompt_set_hash(prompts),
            prompt_count=len(prompts),
            n=sampling.n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_new_tokens=sampling.max_new_tokens,
            max_len=sampling.max_len,
            seed=sampling.seed,
            extractor_version=EXTRACTOR_VERSION,
            restrain_version=__version__,
        )
        shard = Shard(index, count)
        return cls(model, sampling, shard, shard.of(prompts), provenance, tokenizer)

    def run(self, out: Path, on_progress: Callable[[int], None]) -> Path:
        """Sample what is missing; returns the file written (`out`, or this shard's part of it)."""
        path = self.shard.path(out)
        chunk = prompts_per_chunk(self.sampling.n, detect().has_gpus)
        sampling = SamplingPass(self.prompts, self.provenance, path, ReferenceRow, chunk)
        sampling.run(lambda: RolloutEngine(self.model, self.sampling, self.tokenizer), on_progress)
        return path
