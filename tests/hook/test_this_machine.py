"""The demo's layout on one GPU, on two, on three, and on a stack without any; presets with flash-attn; pretended."""

from types import SimpleNamespace

import pytest

from restrain_openrlhf.config import this_machine
from restrain_openrlhf.config.checks import refuse_settings
from restrain_openrlhf.config.gpu_layout import GpuLayout
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.this_machine import flags_to_share, on_this_machine, refuse_small_disk, why_small_disk
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from tests.config.memory import cases
from tests.config.presets import preset_file, presets

SMALL = [name for name in presets() if name.startswith("cpu/")]
SHARING = {"train.colocate_all": True, "vllm.enable_sleep": True, "ds.enable_sleep": True, "ds.zero_stage": 2}


@pytest.fixture
def machine(monkeypatch):
    """A machine of so many GPUs."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return lambda gpus: monkeypatch.setattr(this_machine, "visible_gpus", lambda: tuple(map(str, range(gpus))))


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("name", SMALL)
def test_the_small_presets_share_one_gpu_where_there_are_fewer_than_three(machine, name, gpus):
    machine(gpus)
    config = load_run_config(preset_file(name))
    flags = flags_of(on_this_machine(config))
    assert {key: flags[key] for key in SHARING} == SHARING
    assert GpuLayout.of(flags).needed == 1
    refuse_settings(config, flags)
    assert {**flags, **flags_of(config)} == flags_of(config), "nothing else is changed"


@pytest.mark.parametrize("gpus", [0, 3, 8])
def test_the_demo_stays_as_it_is_with_enough_gpus_or_logical_ones(machine, gpus):
    machine(gpus)
    config = load_run_config(preset_file("cpu/demo"))
    assert on_this_machine(config) == config


def test_a_layout_that_was_not_asked_to_share_is_left_alone(machine):
    machine(1)
    for config in (
        load_run_config(preset_file("cpu/demo"), {"share_gpus": False}),
        load_run_config(preset_file("dapo14k/qwen3-4b-base/restrain"), {"openrlhf.ds.attn_implementation": "sdpa"}),
    ):
        assert on_this_machine(config) == config


def test_a_clusters_gpus_are_not_this_machines(machine, monkeypatch):
    machine(1)
    monkeypatch.setenv("RAY_ADDRESS", "ray-head:6379")
    config = load_run_config(preset_file("cpu/demo"))
    assert on_this_machine(config) == config


def test_a_stage_that_is_asked_for_is_kept_and_engines_of_an_asynchronous_run_are_not_shared():
    flags = flags_of(load_run_config(preset_file("cpu/demo")))
    assert flags_to_share({**flags, "ds.zero_stage": 3}, 1)["ds.zero_stage"] == 3
    assert flags_to_share({**flags, "train.async_enable": True}, 1) == {}


PACKED = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}


@pytest.fixture
def flash_attention(monkeypatch):
    monkeypatch.setattr(this_machine, "has_extension", lambda: True)


def packing(config):
    return {name: value for name, value in on_this_machine(config).openrlhf.items() if name in PACKED}


@pytest.mark.parametrize("name", [name for name in presets() if not name.startswith("cpu/")])
def test_presets_for_gpus_pack_where_flash_attention_is_built(flash_attention, machine, name):
    machine(8)
    assert packing(load_run_config(preset_file(name))) == PACKED


BY_TORCHS_KERNEL = {**PACKED, "ds.attn_implementation": "torch_flash_attention"}


@pytest.mark.parametrize(
    ("gpus", "reason", "found"),
    [(8, None, BY_TORCHS_KERNEL), (8, "torch 2.11 takes no enable_gqa", {}), (0, None, {})],
)
def test_without_flash_attention_torchs_own_kernel_packs_if_it_can(machine, monkeypatch, gpus, reason, found):
    machine(gpus)
    monkeypatch.setattr(this_machine, "why_not_by_torch", lambda: reason)
    here = on_this_machine(load_run_config(preset_file("dapo14k/qwen3-4b-base/restrain"))).openrlhf
    assert {name: here[name] for name in BY_TORCHS_KERNEL if name in here} == found


@pytest.mark.parametrize(
    ("flag", "value"),
    [("ds.packing_samples", False), ("train.dynamic_batch_enable", False), ("ds.attn_implementation", "sdpa")],
)
def test_what_a_configuration_says_of_packing_stays(flash_attention, machine, flag, value):
    machine(8)
    config = load_run_config(preset_file("dapo14k/qwen3-4b-base/restrain"), {f"openrlhf.{flag}": value})
    assert on_this_machine(config) == config


# A checkpoint of the 388 parameters has 14 bytes of each, a model two.
ONE, MODEL = 5_432, 776


@pytest.mark.parametrize(
    ("steps", "there", "changed", "needed"),
    [
        (100, 0, {}, 3 * ONE + MODEL),
        (None, 0, {}, 3 * ONE + MODEL),
        (20, 0, {}, 2 * ONE + MODEL),
        (9, 0, {}, MODEL),
        (100, 1, {}, 2 * ONE + MODEL),
        (100, 2, {"ckpt.max_num": 1}, ONE + MODEL),
        (29, 2, {}, MODEL),
        (100, 0, {"ckpt.save_hf": True}, 3 * ONE + 3 * MODEL),
        (100, 0, {"ckpt.max_mem": 1e-6}, 2 * ONE + MODEL),
        (100, 0, {"ckpt.disable_ds": True}, MODEL),
        (100, 0, {"ckpt.save_steps": -1}, MODEL),
        (100, 0, {"ds.lora.rank": 2}, 3 * 256 * 14 + (388 + 256) * 2),
        (100, 0, {"actor.optim": "muon"}, 0),
    ],
)
def test_a_disk_without_room_for_the_checkpoints_is_refused(monkeypatch, tmp_path, steps, there, changed, needed):
    monkeypatch.setattr(this_machine, "shape_of", lambda _model: cases.TINY)
    path = tmp_path / "run" / "checkpoints"
    for place in range(there):
        (path / "_actor" / f"global_step{10 * (place + 1)}").mkdir(parents=True)
    flags = {**cases.flags(), "ckpt.path": str(path), "ckpt.save_steps": 10, "ckpt.max_num": 2, **changed}
    for free, is_enough in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(this_machine, "disk_usage", lambda _path, free=free: SimpleNamespace(free=free))
        assert (why_small_disk(flags, steps) is None) is (is_enough or not needed)
    monkeypatch.setattr(this_machine, "disk_usage", lambda _path: SimpleNamespace(free=0))
    if steps and needed:
        with pytest.raises(ConfigError, match=rf"^{path}: 0.0 GiB are free.*lower ckpt.max_num \(now .*run_dir"):
            refuse_small_disk(flags, steps)
