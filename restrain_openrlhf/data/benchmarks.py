"""The paper's benchmarks and the TTRL line's AMC: where the hub has them, how their rows look, and their sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

from restrain_openrlhf.data.problems import (
    AMC,
    ANSWERED,
    GPQA,
    LETTERED,
    MMLU,
    OLYMPIAD,
    S1K,
    WORDED,
    RowSchema,
)
from restrain_openrlhf.data.sources import HubSet

GPQA_GATE = (
    "open huggingface.co/datasets/Idavidrein/gpqa, accept its terms while logged in, then run `hf auth login` with a "
    "token that may read gated sets (or set HF_TOKEN), and try again."
)


@dataclass(frozen=True)
class Benchmark:
    """A named benchmark. `schemas`: what its rows may look like, the hub's first; `sizes`: numbers of problems."""

    name: str
    title: str
    hub: HubSet
    sizes: tuple[int, ...] = ()
    schemas: tuple[RowSchema, ...] = (WORDED,)
    note: str = ""


BENCHMARKS: Mapping[str, Benchmark] = {
    entry.name: entry
    for entry in (
        Benchmark("math500", "MATH-500", HubSet("HuggingFaceH4/MATH-500", split="test"), (500,)),
        Benchmark("amc23", "AMC23", HubSet("math-ai/amc23", split="test"), (40,)),
        Benchmark(
            "amc83",
            "AMC (83)",
            HubSet("AI-MO/aimo-validation-amc", licence="apache-2.0"),
            (83,),
            (AMC,),
            "AMC 12 of 2022 and 2023; what the TTRL line calls AMC",
        ),
        Benchmark("aime24", "AIME24", HubSet("HuggingFaceH4/aime_2024"), (30,)),
        Benchmark("aime25", "AIME25", HubSet("MathArena/aime_2025", licence="cc-by-nc-sa-4.0"), (30,)),
        Benchmark(
            "olympiadbench",
            "OlympiadBench",
            HubSet("Hothan/OlympiadBench", config="OE_TO_maths_en_COMP", licence="apache-2.0"),
            (674, 675),
            (OLYMPIAD, ANSWERED),
            "675 problems in Qwen2.5-Math's own copy",
        ),
        Benchmark("minerva_math", "Minerva", HubSet("math-ai/minervamath", split="test"), (272,)),
        Benchmark(
            "mmlu_stem",
            "MMLU-STEM",
            HubSet("hails/mmlu_no_train", config="all", split="test", licence="mit"),
            (3018,),
            (MMLU, LETTERED),
            "the 18 subjects of Qwen2.5-Math's evaluation",
        ),
        Benchmark(
            "gpqa_diamond",
            "GPQA-Diamond",
            HubSet("Idavidrein/gpqa", config="gpqa_diamond", licence="cc-by-4.0", gate=GPQA_GATE),
            (198,),
            (GPQA, LETTERED),
            "gated; the order of choices is ours",
        ),
        Benchmark(
            "s1k",
            "s1k (verifiable)",
            HubSet("simplescaling/s1K", licence="apache-2.0"),
            (893,),
            (S1K, ANSWERED),
            "which 893 rows the paper has is not published; no theorems, and a gold that can be checked",
        ),
    )
}
# In the order of the paper's tables; without the TTRL line's AMC, and s1k, of which the paper's rows are not known.
PAPER_BENCHMARKS = tuple(name for name in BENCHMARKS if name not in ("amc83", "s1k"))
# Several benchmarks by one name, as `restrain eval --benchmarks` takes it: those of the paper's Tables 1 and 3.
SUITES: Mapping[str, tuple[str, ...]] = {
    "table1": ("math500", "aime25", "olympiadbench", "minerva_math", "mmlu_stem", "gpqa_diamond"),
    "table3": ("aime24", "amc83", "math500"),
}
