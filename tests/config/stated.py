"""What the paper states about its runs: its own words, where they stand, and the flag or setting that must agree."""

from dataclasses import dataclass

QWEN = ("dapo14k/qwen3-4b-base", "s1k/qwen3-4b-base", "ablations")
OCTOTHINKER = ("dapo14k/octothinker-8b-hybrid-base",)
# Without the presets by the TTRL line's protocol, whose values are the TTRL line's.
TEST_TIME = ("test_time/llama3.1-8b-instruct",)
EVERYWHERE = (*QWEN, *OCTOTHINKER, *TEST_TIME)


@dataclass(frozen=True)
class Stated:
    """`words` as in the paper's LaTeX source; `key` must have `value` in the presets below `folders`."""

    key: str
    value: object
    place: str
    words: str
    folders: tuple[str, ...] = EVERYWHERE


RUNS = (
    Stated("actor.adam.lr", 1e-6, "D.2", r"we use a learning rate of $1 \times 10^{-6}$"),
    Stated("actor.optim", "adam", "D.2", "adopt the AdamW optimizer for the policy model"),
    Stated("algo.kl.init_coef", 0.001, "D.2", "We set kl loss coefficient to 0.001"),
    Stated("actor.entropy_coef", 0, "D.2", "the entropy coefficient to 0."),
    Stated("rollout.n_samples_per_prompt", 16, "D.2", "we sample 16 responses"),
    Stated("rollout.temperature", 1.0, "D.2", "using a temperature of 1.0 for training"),
    Stated("train.num_episodes", 20, "D.2", "We set the number of epochs to 20"),
    Stated(
        "rollout.max_new_tokens",
        4096,
        "D.2",
        "The maximum generation length is set to 4096 for Qwen3-4B-Base and Llama3.1-8B-Instruct",
        (*QWEN, *TEST_TIME),
    ),
    Stated("rollout.max_new_tokens", 8192, "D.2", "and 8192 for Octothinker Hybrid 8B base model", folders=OCTOTHINKER),
    Stated("actor.model_name_or_path", "Qwen/Qwen3-4B-Base", "§3", "we use Qwen3-4B-Base", QWEN),
    Stated(
        "actor.model_name_or_path",
        "OctoThinker/OctoThinker-8B-Hybrid-Base",
        "§3",
        "Octothinker Hybrid 8B base",
        OCTOTHINKER,
    ),
    Stated(
        "actor.model_name_or_path",
        "meta-llama/Llama-3.1-8B-Instruct",
        "§3",
        "as well as the Llama3.1-8B-Instruct model",
        TEST_TIME,
    ),
)
# Of RESTRAIN with Qwen3-4B-Base on DAPO-14k: the rows of Tables 7 to 9 that are its result.
METHOD = (
    Stated("sigma", 0.5, "§5", r"Thus, $\sigma=0.5$ provides the best balance", QWEN[:1]),
    Stated("delta", 1.0, "§5", r"The best accuracy occurs at $\delta = 1$", QWEN[:1]),
    Stated("kappa", 3, "§5", r"peaking at a value of $\kappa=3$", QWEN[:1]),
)
EVALUATION = (
    Stated("n", 16, "§3", "sampling 16 predictions per question"),
    Stated("temperature", 0.6, "§3", "using a temperature of 0.6"),
    Stated("top_p", 0.95, "§3", "a top-$p$ value of 0.95"),
)
# Sizes in the paper's own rounding, by the names of `restrain data list`.
SIZES = (
    Stated("dapo14k", 14, "§3", "use 14k English language prompts"),
    Stated("synthetic-s1k", 5, "§3", "A 5k synthetic reasoning dataset"),
    Stated("math500", 500, "D.1", "a 500-problem subset"),
    Stated("s1k", 893, "D.1", "a subset of 893 s1k examples"),
)
BENCHMARKS = {
    "math500": "MATH-500",
    "aime24": "AIME24",
    "aime25": "AIME25",
    "amc23": "AMC23",
    "olympiadbench": "OlympiadBench (math subset)",
    "minerva_math": r"Minerva\_math",
    "mmlu_stem": r"MMLU\_STEM",
    "gpqa_diamond": "GPQA-Diamond",
    "s1k": "s1k (verifiable subset)",
}
