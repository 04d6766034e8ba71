"""The offline pass of the frozen model: its options, one shard of it, the joined shards, and smaller passes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.answers.asked import compare_forms
from restrain_openrlhf.config.command_line import ANSWERS, AgentOption, KindOption
from restrain_openrlhf.config.documents import CHAT_TEMPLATE
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.identity import model_fingerprint, provenance_path
from restrain_openrlhf.data.jsonl import FollowedFile, write_rows
from restrain_openrlhf.data.outputs import output_file
from restrain_openrlhf.errors import ConfigError, DataError, ReferencePassError
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.host_releases import check_version
from restrain_openrlhf.machine.processes import run_command
from restrain_openrlhf.reference.artifact import Reference, ReferenceProvenance, ReferenceRow
from restrain_openrlhf.reference.offline_engine import Rollout, RolloutEngine, Sampling, refuse_long_prompts
from restrain_openrlhf.reference.prompts import (
    Prompt,
    PromptSource,
    load_prompts,
    load_tokenizer,
    prompt_set_hash,
    prompt_source,
    template_identity,
)
from restrain_openrlhf.reference.sampling_pass import (
    WHOLE,
    Engine,
    RowsByKey,
    SamplingPass,
    Shard,
    ShardedPass,
    new_rows,
    prompts_per_chunk,
    shared_provenance,
)

# So many prompts keep their responses, for `restrain premise` to show.
SHOWN_PROMPTS = 8
# Is called with a number of prompts, and that of all.
OnProgress = Callable[[int, int], None]
# OpenRLHF's flags always have a value for these options. A command only names it if it is not the default.
UNNAMED_AT_DEFAULT = ("split", "max_samples")


class ModelAndPrompts(BaseModel):
    """Which model samples which prompts, and into which file."""

    model: str = Field(alias="actor.model_name_or_path", description="Frozen base model: a hub id or a local folder.")
    prompts: str = Field(
        alias="data.prompt_dataset",
        description="Prompts: a table (JSONL, JSON, CSV, TSV, Parquet, text), or a hub data set.",
    )
    split: str = Field("train", alias="data.prompt_split", description="The split of a hub data set.")
    max_samples: int = Field(
        100_000_000,
        alias="data.max_samples",
        ge=1,
        description="Sample at most this many prompts, from the first on. OpenRLHF's default is more than any set has.",
    )
    out: Path = Field(description="The reference file (JSON Lines). Its provenance is written beside it.")
    input_key: str = Field("problem", alias="data.input_key", description="Column of the prompt.")
    input_template: str | None = Field(
        None, alias="data.input_template", description="Prompt template; {} stands for the prompt."
    )
    apply_chat_template: bool | None = Field(
        None, alias=CHAT_TEMPLATE, description="Render prompts with the tokenizer's chat template."
    )

    def source(self) -> PromptSource:
        return PromptSource(
            self.prompts, self.input_key, self.input_template, self.apply_chat_template, self.split, self.max_samples
        )


class OfflineOptions(Sampling, ModelAndPrompts):
    """The options of `restrain reference`. An alias is the OpenRLHF flag of the same meaning."""

    answers: KindOption = Field(MATHEMATICS, description=ANSWERS)
    agent: AgentOption | None = Field(
        None,
        description=(
            "Your own agent's file, or a block such as '{path: agent.py, turns: all}'. That agent then draws the "
            "rollouts."
        ),
    )

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], **given: object) -> Self:
        """The options that are `given`, and the others from OpenRLHF's flags (dotted names). None counts as not given.

        Raises ConfigError for a value that the option does not take.
        """
        names = {name: cls.flag(name) for name in cls.model_fields}
        chosen = {flag: flags.get(flag) if given.get(name) is None else given[name] for name, flag in names.items()}
        try:
            return cls.model_validate({flag: value for flag, value in chosen.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            name, why = first["loc"][0], f"{first['msg'][:1].lower()}{first['msg'][1:]}"
            raise ConfigError(f"openrlhf: {name} is {first['input']!r}: {why}.") from None

    @classmethod
    def flag(cls, name: str) -> str:
        """The OpenRLHF flag of the same meaning as this option, or the option's own name."""
        return cls.model_fields[name].alias or name

    def words(self) -> list[str]:
        """The command line for the options that were given; the others have the command's defaults."""
        fields = type(self).model_fields
        said = self.model_fields_set - {
            name for name in UNNAMED_AT_DEFAULT if getattr(self, name) == fields[name].default
        }
        written = self.model_dump(include=said, exclude_none=True)
        given = {name.replace("_", "-"): value for name, value in written.items()}
        valued = [f"--{word}={value}" for word, value in given.items() if not isinstance(value, bool)]
        switches = ((word, value) for word, value in given.items() if isinstance(value, bool))
        return [*valued, *(f"--{'' if value else 'no-'}{word}" for word, value in switches)]


@dataclass(frozen=True)
class OfflinePass:
    """One shard of a pass, checked and ready to run. `read` says what was read as prompts."""

    options: OfflineOptions
    shard: Shard
    prompts: list[Prompt]
    provenance: ReferenceProvenance
    tokenizer: object
    read: str

    @classmethod
    def prepare(cls, options: OfflineOptions, source: PromptSource, shard: Shard) -> Self:
        """Load and check everything but the engine.

        Raises ConfigError for a model that does not exist, DataError for bad prompts and prompts that are too long.
        """
        output_file(options.out)
        kind, agent, fingerprint = options.answers, options.agent, model_fingerprint(options.model)
        tokenizer = load_tokenizer(options.model, source)
        reader = source.reader()
        everything = load_prompts(source, tokenizer, kind, reader)
        if agent is None:
            reader.note = compare_forms(kind, ((each.text, each.row) for each in everything))
        prompts = shard.of(everything)
        kind.check(prompt.row for prompt in prompts)
        refuse_long_prompts(prompts, tokenizer, options)
        provenance = ReferenceProvenance(
            model=options.model,
            model_fingerprint=fingerprint,
            template=template_identity(source, tokenizer),
            prompt_set_hash=prompt_set_hash(map(ReferenceRow.key_of, everything)),
            prompt_count=len(everything),
            answers=kind.model_dump(mode="json"),
            extractor_version=kind.whole_version,
            restrain_version=version("restrain-openrlhf"),
            agent=None if agent is None else agent.identity,
            **options.model_dump(include=Sampling.model_fields.keys() & ReferenceProvenance.model_fields.keys()),
        )
        return cls(options, shard, prompts, provenance, tokenizer, reader.summary())

    @property
    def path(self) -> Path:
        """The file that is written: `options.out`, or this shard's part of it."""
        return self.shard.path(self.options.out)

    def engine(self) -> Engine:
        """The engine for rollouts in a single turn.

        A pass with an `agent` has another (hook/rollout/trajectories.py).
        """
        return RolloutEngine(self.options.model, self.options, self.tokenizer)

    def sampling(self) -> SamplingPass:
        chunk = prompts_per_chunk(self.options.n, detect().has_gpus)
        shown = {prompt.text for prompt in self.prompts[: -(-SHOWN_PROMPTS // self.shard.count)]}

        def make(prompt: Prompt, rollouts: Sequence[Rollout]) -> ReferenceRow:
            return ReferenceRow.of(self.provenance.kind, prompt, rollouts, prompt.text in shown)

        return SamplingPass(self.prompts, self.provenance, self.path, ReferenceRow, make, chunk)


def sample_reference(
    config: RunConfig, out: Path, on_progress: OnProgress = lambda _done, _of: None, **given: Any
) -> None:
    """Sample the pass that a run needs into `out`, on all visible GPUs; `given` options replace the run's.

    A process of `restrain reference` does this. Existing rollouts are kept, and for a complete file no process is
    started. `on_progress` gets the number of prompts that are done, of how many, whenever it has grown. Raises what
    `offline_pass` raises, and RunError with the log's last lines where the process fails.
    """
    job = offline_pass(config, WHOLE, out=out, **given)
    if not job.sampling().is_complete():
        shards = ShardedPass([out], job.options.tensor_parallel_size).shards()
        files, done = [FollowedFile(shard.path(out)) for shard in shards], 0

        def look() -> None:
            nonlocal done
            if more := new_rows(files):
                done += more
                on_progress(done, len(job.prompts))

        run_command(["reference", *job.options.words()], out.parent / "sampling.log", look)
        look()


def offline_pass(config: RunConfig, shard: Shard = WHOLE, **given: Any) -> OfflinePass:
    """A shard of the pass that the run needs, ready to run in this process. Options that are `given` replace the run's.

    Raises ConfigError if the configuration names no reference, model or limit of new tokens, and what
    OfflinePass.prepare raises.
    """
    given = {"out": config.reference, **given}
    if given["out"] is None:
        raise ConfigError("The configuration names no file for the reference. Set `reference:`.")
    check_version()
    flags = flags_of(config) | {OfflineOptions.flag(name): value for name, value in given.items()}
    for name in ("actor.model_name_or_path", "rollout.max_new_tokens"):
        if not flags[name]:
            raise ConfigError(
                f"openrlhf: {name} is not set, but the offline pass must sample exactly as training will. Set it."
            )
    options = OfflineOptions.from_flags(flags, **{"n": config.reference_n, **own_options(config), **given})
    return OfflinePass.prepare(options, prompt_source(flags), shard)


def own_options(config: RunConfig) -> dict[str, Any]:
    """The options that a configuration's own keys set; None if they do not."""
    return {
        "answers": None if config.answers == MATHEMATICS else config.answers,
        "agent": config.agent,
        **config.engine.options(),
    }


def merge(shards: Sequence[Path], out: Path) -> int:
    """Join shards into one artifact, and return its number of rows. A single shard may be `out` itself.

    Raises ReferencePassError if shards differ in provenance, DataError where prompts are missing or overlap.
    """
    provenance, rows = shared_provenance(shards, ReferenceProvenance), RowsByKey(shards, ReferenceRow)
    if len(rows) != provenance.prompt_count:
        raise DataError(
            f"The {len(shards)} shards hold {len(rows)} of {provenance.prompt_count} prompts. Finish or add the "
            "missing shards."
        )
    _write(out, rows, provenance)
    return len(rows)


def subset(reference: Reference, out: Path, n: int) -> int:
    """Write the votes of the first `n` rollouts of each prompt, and return the number of rows.

    Raises ReferencePassError if `n` is more than were sampled, and where `out` is the artifact itself.
    """
    made = reference.provenance
    if n > made.n:
        raise ReferencePassError(
            f"{reference.path} has {made.n} rollouts per prompt, but {n} are asked for. Sample more with `restrain "
            "reference --n`, into another file."
        )
    if out.resolve() == reference.path.resolve():
        raise ReferencePassError(f"--out {out}: is the file that is read. Name another file.")
    _write(out, (row.first(n, reference.kind) for row in reference.rows), made.model_copy(update={"n": n}))
    return made.prompt_count


def _write(out: Path, rows: Iterable[ReferenceRow], provenance: ReferenceProvenance) -> None:
    """Write rows and provenance so that no file ever has the provenance of another.

    A kill leaves the old file with its provenance, or a file without provenance, which readers refuse.
    """

    def rows_and_no_old_provenance() -> Iterator[ReferenceRow]:
        yield from rows
        old = provenance_path(out)
        if old.exists() and old.read_text(encoding="utf-8") != provenance.text:
            old.unlink()

    write_rows(out, rows_and_no_old_provenance())
    provenance.write(out)
