"""The paper's benchmarks and the TTRL line's AMC, each with its place on the hub, its columns and its size."""

from collections.abc import Mapping
from dataclasses import dataclass

from restrain_openrlhf.data.sources import HubSet
from restrain_openrlhf.evaluation.problems import Shape, gpqa, mmlu, olympiad, plain, verifiable

# The subjects Qwen2.5-Math's evaluation calls STEM.
STEM = frozenset(
    {
        "abstract_algebra",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    }
)
GPQA_GATE = (
    "open huggingface.co/datasets/Idavidrein/gpqa, accept its terms while logged in, then run `hf auth login` with a "
    "token that may read gated sets (or set HF_TOKEN), and try again."
)


@dataclass(frozen=True)
class Benchmark:
    """A named benchmark. `columns` are what its hub rows must have; `sizes` are right numbers of problems."""

    name: str
    title: str
    hub: HubSet
    shape: Shape
    columns: frozenset[str]
    sizes: tuple[int, ...] = ()
    note: str = ""


def _plain(name: str, title: str, hub: HubSet, columns: tuple[str, str, str | None], size: int) -> Benchmark:
    needed = frozenset(column for column in columns if column is not None)
    return Benchmark(name, title, hub, plain(*columns), needed, (size,))


BENCHMARKS: Mapping[str, Benchmark] = {
    entry.name: entry
    for entry in (
        _plain(
            "math500",
            "MATH-500",
            HubSet("HuggingFaceH4/MATH-500", split="test"),
            ("problem", "answer", "unique_id"),
            500,
        ),
        _plain("amc23", "AMC23", HubSet("math-ai/amc23", split="test"), ("question", "answer", "id"), 40),
        _plain(
            "amc83",
            "AMC (83)",
            HubSet("AI-MO/aimo-validation-amc", licence="apache-2.0"),
            ("problem", "answer", "id"),
            83,
        ),
        _plain("aime24", "AIME24", HubSet("HuggingFaceH4/aime_2024"), ("problem", "answer", "id"), 30),
        _plain(
            "aime25",
            "AIME25",
            HubSet("MathArena/aime_2025", licence="cc-by-nc-sa-4.0"),
            ("problem", "answer", "problem_idx"),
            30,
        ),
        Benchmark(
            "olympiadbench",
            "OlympiadBench",
            HubSet("Hothan/OlympiadBench", config="OE_TO_maths_en_COMP", licence="apache-2.0"),
            olympiad,
            frozenset({"question", "final_answer"}),
            (674, 675),
            "675 problems in Qwen2.5-Math's own copy",
        ),
        _plain(
            "minerva_math", "Minerva", HubSet("math-ai/minervamath", split="test"), ("question", "answer", None), 272
        ),
        Benchmark(
            "mmlu_stem",
            "MMLU-STEM",
            HubSet("hails/mmlu_no_train", config="all", split="test", licence="mit"),
            mmlu(STEM),
            frozenset({"question", "choices", "answer", "subject"}),
            (3018,),
            "the 18 subjects of Qwen2.5-Math's evaluation",
        ),
        Benchmark(
            "gpqa_diamond",
            "GPQA-Diamond",
            HubSet("Idavidrein/gpqa", config="gpqa_diamond", licence="cc-by-4.0", gate=GPQA_GATE),
            gpqa,
            frozenset({"Question", "Correct Answer", *(f"Incorrect Answer {number}" for number in (1, 2, 3))}),
            (198,),
            "gated; the order of choices is ours",
        ),
        Benchmark(
            "s1k",
            "s1k (verifiable)",
            HubSet("simplescaling/s1K", licence="apache-2.0"),
            verifiable,
            frozenset({"question", "solution", "cot_type"}),
            (893,),
            "the paper's choice of 893 rows is not published; the rule is ours",
        ),
    )
}
