"""The training sets known by name: where they live, which columns count, and what a right copy looks like."""

from dataclasses import dataclass

from restrain_openrlhf.data.sources import HubSet
from restrain_openrlhf.errors import DataError


@dataclass(frozen=True)
class TrainingSet:
    """`prompt` and `answer` name columns; `count` and `digest` are of the known copy, None where not known.

    Rows of another count are refused; prompts of another digest (`identity.set_digest`) are a warning. No prompt may be
    a problem of the benchmark `apart_from`, which was cut out of the same set.
    """

    name: str
    about: str
    prompt: str
    answer: str | None
    hub: HubSet | None = None
    count: int | None = None
    digest: str | None = None
    apart_from: str | None = None


DAPO14K = TrainingSet(
    name="dapo14k",
    about="DAPO-14k-MATH: the English split, prompts and answers as they are",
    prompt="prompt",
    answer="solution",
    hub=HubSet("open-r1/DAPO-Math-17k-Processed", config="en", licence="not stated on its card"),
    count=14_116,
    digest="cb8006ca3d13115bf283c1cdc3597d37364d97db56d27b749e454936d8bd3390",
)
SYNTHETIC_S1K = TrainingSet(
    name="synthetic-s1k",
    about="synthetic S1k of CoT-Self-Instruct, 5,000 prompts; no public location was found: give your copy",
    prompt="prompt",
    answer=None,
    count=5_000,
)
MATH12K = TrainingSet(
    name="math12k",
    about="MATH without MATH-500: the 12,000 problems of PRM800K's training split",
    prompt="problem",
    answer="answer",
    hub=HubSet("hiyouga/math12k", licence="not checked; MATH is MIT"),
    count=12_000,
    apart_from="math500",
)
OWN = TrainingSet(
    name="own",
    about="any JSONL, Parquet or CSV of your own, or a hub id by --hub-id; columns by options",
    prompt="problem",
    answer=None,
)
TRAINING_SETS = {entry.name: entry for entry in (DAPO14K, MATH12K, SYNTHETIC_S1K, OWN)}


def training_set(name: str) -> TrainingSet:
    """The entry of that name. Raises DataError naming those there are."""
    if name not in TRAINING_SETS:
        raise DataError(
            f"{name!r} is no known training set. Known: {', '.join(TRAINING_SETS)} (`restrain data list`); for a file "
            "of your own: `restrain data prepare own --source FILE`."
        )
    return TRAINING_SETS[name]
