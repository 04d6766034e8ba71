"""A program for the CUDA stack without a driver: what each preset's flags become in OpenRLHF, DeepSpeed and vLLM.

`python -m tests.cuda_settings CAPABILITY PRESET ...` prints a JSON line for each preset: of DeepSpeed's own reading of
the host's configuration on so many ranks, and of vLLM's engine configuration on a pretended GPU of that compute
capability. Models are their config.json alone, and nothing is loaded.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.config.memory.shape import shipped
from restrain_openrlhf.config.this_machine import on_this_machine, with_limits
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.hook.install.environment import to_environment
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.hook.launch.train import flags_here
from restrain_openrlhf.machine.devices import detect
from tests.config.test_presets import CONTEXTS

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Nothing of them is called here.
NEED_A_DRIVERS_LIBRARY = ("vllm._C_stable_libtorch", "vllm.vllm_flash_attn._vllm_fa2_C")
ADAM = {"type": "AdamW", "params": {"lr": 1e-6}}


def pretend_gpu(major):
    """vLLM's CUDA platform, told a capability in the driver's place."""
    for compiled in NEED_A_DRIVERS_LIBRARY:
        sys.modules[compiled] = ModuleType(compiled)
    from vllm import platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Pretended(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(major, 0)

        @classmethod
        def get_device_name(cls, device_id=0):
            return "pretended"

        @classmethod
        def get_device_total_memory(cls, device_id=0):
            return 80 * 2**30

        def is_cumem_allocator_available(self):
            return True

    platforms._current_platform = Pretended()


def model_of(name, folder):
    """Its config.json, by the shape that comes with the package."""
    shape = shipped()[name]
    other = {"architectures": [ARCHITECTURES[shape.model_type]], "max_position_embeddings": CONTEXTS[name]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**shape.model_dump(), **other, "torch_dtype": "bfloat16"}))
    return str(folder)


def deepspeeds(args, ranks):
    """DeepSpeed's reading of what the host's strategy asks for."""
    from deepspeed.runtime import config as deepspeed
    from openrlhf.utils import get_strategy

    made = get_strategy(args).get_ds_train_config(ADAM, max_norm=1.0)
    with patch.object(deepspeed.dist, "get_rank", lambda: 0):
        read = deepspeed.DeepSpeedConfig(made, mpu=SimpleNamespace(get_data_parallel_world_size=lambda: ranks))
    return {
        "stage": read.zero_config.stage,
        "micro_batches": read.gradient_accumulation_steps,
        "rollouts": read.train_batch_size,
        "summed_in": str(read.grad_accum_dtype),
        "torch_adam": read.optimizer_params.get("torch_adam", False),
        "managed": made.get("managed_gradient_accumulation", True),
    }


def engine_arguments(args):
    """What the host's first rollout actor, hooked, gives vLLM."""
    import vllm
    from openrlhf.trainer.ray import vllm_engine

    asked = []
    actor_class = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class
    ray_actor = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda **given: asked.append(given)))
    with (
        patch.object(vllm_engine, "RolloutRayActor", ray_actor),
        patch.object(vllm_engine, "batch_vllm_engine_call"),
        patch.object(vllm_engine, "get_bundle_indices", lambda *_: [0]),
    ):
        vllm_engine.create_vllm_engines(
            args.vllm.num_engines,
            args.vllm.tensor_parallel_size,
            args.actor.model_name_or_path,
            args.train.seed,
            args.train.full_determinism_enable,
            args.vllm.enable_prefix_caching,
            args.vllm.enforce_eager,
            args.data.max_len,
            object(),
            args.vllm.gpu_memory_utilization,
            args.vllm.enable_sleep,
        )
    given = []

    async def is_sleeping():
        return False

    def engine_of(arguments):
        given.append(arguments)
        return SimpleNamespace(is_sleeping=is_sleeping)

    with patch.object(vllm.AsyncLLMEngine, "from_engine_args", engine_of):
        asyncio.run(actor_class.__init__(actor_class.__new__(actor_class), **asked[0]))
    return given[0]


def engines(args, head_size):
    """vLLM's own reading of them, and the attention that it would choose on this GPU."""
    import torch
    from vllm.platforms import current_platform
    from vllm.v1.attention.selector import AttentionSelectorConfig

    arguments = engine_arguments(args)
    read = arguments.create_engine_config()
    wanted = AttentionSelectorConfig(head_size, torch.bfloat16, "auto", None)
    chosen = current_platform.get_attn_backend_cls(read.attention_config.backend, wanted)
    return {
        "tokens": read.model_config.max_model_len,
        "rollouts_at_once": read.scheduler_config.max_num_seqs,
        "tokens_at_once": read.scheduler_config.max_num_batched_tokens,
        "share_of_gpu": read.cache_config.gpu_memory_utilization,
        "log_probs": str(read.model_config.logprobs_mode),
        "sleeps": read.model_config.enable_sleep_mode,
        "attention": chosen.rsplit(".", 1)[-1],
    }


def settings_of(preset, folder):
    from openrlhf.utils.config import hierarchize

    config = load_run_config(find_config(preset))
    flags = flags_here(config)
    name = flags["actor.model_name_or_path"]
    asked = {**detect().host_flags, **host_flags(on_this_machine(config))}
    words = to_arguments({**asked, "actor.model_name_or_path": model_of(name, folder / name)})
    args = hierarchize(parse(words))
    os.environ.update(to_environment(with_limits(config, flags, detect())))
    return {
        "preset": preset,
        "deepspeed": deepspeeds(args, GpuLayout.of(flags).ranks),
        "vllm": engines(args, shipped()[name].head_dim),
    }


def main(capability, *presets):
    detect().install()
    install()
    pretend_gpu(int(capability))
    os.environ["RAY_ADDRESS"] = "not-used"
    with tempfile.TemporaryDirectory() as folder:
        for preset in presets:
            print("\n" + json.dumps(settings_of(preset, Path(folder))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
