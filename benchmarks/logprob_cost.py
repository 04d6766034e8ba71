"""What it costs that training rollouts bring their log-probabilities: vLLM's generation of one step, with and without.

One engine of the demo's model, 32 prompts x 16 rollouts; the ways in turn, by the clock. The last way has vLLM turn
each token into text as well, which is what asking for log-probabilities alone would do.
"""

import os
import statistics
import time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from restrain_openrlhf.hook.devices import detect

DEVICE = detect()
DEVICE.install()

from rich.console import Console  # noqa: E402 - the device comes first
from vllm import LLM, SamplingParams  # noqa: E402

from restrain_openrlhf.demo.addition import training_problems  # noqa: E402
from restrain_openrlhf.demo.tasks import ADDITION  # noqa: E402

REPEATS = 9
PROMPTS = [problem.problem for problem in training_problems(32)]
PLAIN = SamplingParams(n=16, temperature=1.0, max_tokens=14)
WAYS = {
    "with log-probabilities": SamplingParams(n=16, temperature=1.0, max_tokens=14, logprobs=0, detokenize=False),
    "and their tokens as text": SamplingParams(n=16, temperature=1.0, max_tokens=14, logprobs=0),
}


def main() -> None:
    """Measure and print the ratios to generation without log-probabilities."""
    engine = LLM(model=str(ADDITION.model), dtype="bfloat16", max_model_len=64, seed=1, **DEVICE.engine_options)
    seconds(engine, PLAIN)
    ratios: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(REPEATS):
        plain = seconds(engine, PLAIN)
        for name, parameters in WAYS.items():
            ratios[name].append(seconds(engine, parameters) / plain)
    for name, found in ratios.items():
        median = statistics.median(found)
        Console().print(f"{name}: {median:.2f} of the time without ({min(found):.2f} to {max(found):.2f})")


def seconds(engine: LLM, parameters: SamplingParams) -> float:
    """One step's rollouts."""
    start = time.perf_counter()
    engine.generate(PROMPTS, parameters, use_tqdm=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
