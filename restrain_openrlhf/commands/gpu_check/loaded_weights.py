"""Checks that vLLM has the trained weights bit for bit: compares a run's digests with those of its saved model.

As a program, this module loads a model into vLLM, and prints the digests of the weights that vLLM computes with.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check.children import measured
from restrain_openrlhf.commands.gpu_check.outcome import CheckOutcome, failed, judged
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.records.folder import RunFolder

# The model is small, and nothing else is on the GPU.
MEMORY_SHARE, MAX_LEN = 0.3, 32
# The most names of weights in a message.
MAX_NAMED = 3


def check_digests(run: RunFolder, log: Path) -> CheckOutcome:
    """Compare what each engine of a finished run held after its last weight sync with the saved model."""
    (loaded,) = measured(__name__, [run.model], log)
    files = sorted(run.weight_digests.glob("*.json"))
    return judge_digests([worker for file in files for worker in json.loads(file.read_text())], loaded)


def judge_digests(workers: Sequence[Mapping[str, str]], loaded: Mapping[str, str]) -> CheckOutcome:
    """Compare the digests of all vLLM workers after the last sync with those of one that has `loaded` the model."""
    name = "weights in vLLM, bits"
    if not workers or not loaded:
        return failed(name, f"digests of {len(workers)} vLLM workers and {len(loaded)} weights: nothing was compared")
    pairs = {(weight, each.get(weight), loaded.get(weight)) for each in workers for weight in {*each, *loaded}}
    other = sorted({weight for weight, one, another in pairs if one != another})
    found = (
        f"{len(loaded) - len(other)} of {len(loaded)} weights in {len(workers)} vLLM workers are, after the last sync, "
        f"what vLLM loads from the saved model{'; not ' if other else ''}{', '.join(other[:MAX_NAMED])}"
        f"{' and others' if len(other) > MAX_NAMED else ''}"
    )
    return judged(name, not other, found, weights=len(loaded), other=len(other), workers=len(workers))


def main(model: str) -> None:
    """Print the digests of the model in this folder as one JSON object."""
    from restrain_openrlhf.machine.devices import detect  # noqa: PLC0415

    detect().install()
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    import vllm  # noqa: PLC0415 - after the device is prepared

    from restrain_openrlhf.hook.rollout.held_weights import held  # noqa: PLC0415

    options: dict[str, Any] = {"enforce_eager": True, **detect().engine_options}
    engine = vllm.LLM(
        model=model, dtype="bfloat16", max_model_len=MAX_LEN, gpu_memory_utilization=MEMORY_SHARE, **options
    )
    (digests,) = engine.collective_rpc(held)
    sys.stdout.write("\n" + dump(digests))


if __name__ == "__main__":
    main(*sys.argv[1:])
