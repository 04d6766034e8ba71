"""The checks as a whole: chosen by name, one after the other, told in a table and in JSON, no process left behind."""

import json

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.commands import gpu_check
from restrain_openrlhf.commands.gpu_check import command, gradient, judged, run_module, skipped
from restrain_openrlhf.commands.gpu_check.command import run_check
from restrain_openrlhf.commands.gpu_check.small_run import ADAPTER, SmallRun, on_one_gpu, shared_run
from restrain_openrlhf.config.command_line import find_config, parse_overrides
from restrain_openrlhf.config.host_flags import flags_of, parse
from restrain_openrlhf.config.this_machine import HostRun
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.device import Device, Unsupported
from tests.command_line import refused, restrain
from tests.processes import is_alive


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("absent",), "no such file, and no preset of this name"),
        (("cpu/demo", "--set", "openrlhf.actor.adam.lrr=1"), "Did you mean 'openrlhf.actor.adam.lr'"),
        (("--set", "method.kappa=2"), "no configuration is given"),
        (
            ("cpu/demo", "--set", "openrlhf.actor.model_name_or_path=/absent/model"),
            "/absent/model: no such model folder",
        ),
        (("cpu/demo", "--set", "openrlhf.data.prompt_dataset=/absent/prompts.jsonl"), "/absent/prompts.jsonl"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(words, message, tmp_path):
    assert message in refused("gpu-check", "--allow-cpu", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_it_is_refused_or_says_first_that_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr("restrain_openrlhf.machine.devices.visible_gpus", lambda: ())
    pretend(monkeypatch, fine=fine)
    assert "no GPU was found on this machine" in refused("gpu-check", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = restrain("gpu-check", "--allow-cpu", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert done.stderr.startswith("No GPU was found")


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    """Its results would pass for new ones."""
    (tmp_path / "old").touch()
    assert "not an empty folder" in refused("gpu-check", "--allow-cpu", "--out", tmp_path)


def broken(_out, _config):
    raise RunError("vLLM stopped")


def pretend(monkeypatch, **made):
    monkeypatch.setattr(command, "CHECKS", made)


def fine(_out, _config):
    return [judged("one", True, "good"), skipped("two", "no GPU")]


def test_a_check_that_fails_stops_no_other_and_gives_a_status(monkeypatch, tmp_path):
    pretend(monkeypatch, broken=broken, fine=fine)
    done = restrain("gpu-check", "--allow-cpu", "--out", tmp_path)
    assert done.returncode == 1
    assert "vLLM stopped" in done.stdout
    assert "no GPU" in done.stdout
    found = map(json.loads, (tmp_path / "gpu-check.jsonl").read_text().splitlines())
    assert [line["verdict"] for line in found] == ["fail", "pass", "skipped"]


def test_a_defect_of_a_check_is_not_taken_for_a_finding(monkeypatch, tmp_path):
    def defect(_out, _config):
        raise KeyError("x")

    pretend(monkeypatch, defect=defect)
    with pytest.raises(KeyError):
        run_check("defect", tmp_path)


@pytest.mark.parametrize("missing", [(), ("it is not installed",)])
def test_the_configurations_own_sum_and_flash_attention_where_it_is_there_are_tried(missing, tmp_path, monkeypatch):
    """`measured` has a step that is wrong in the last case, and a method that is not patched."""

    def measured(_module, words, _log):
        far = {"net_advantage": 0.6, "kl_without_prompt_weight": 0.04}
        gaps = [{"hooked": 0.0, **far} for _ in words]
        return [*gaps[1:], {"hooked": 0.5, **far}, {"not_patched": ["X.y"]}]

    without = tuple(Unsupported("ds.attn_implementation", why, "flash_attention_2") for why in missing)
    monkeypatch.setattr(gradient, "measured", measured)
    monkeypatch.setattr(gradient, "detect", lambda: Device("cuda", unsupported=without))
    config = load_run_config(find_config("dapo14k/qwen3-4b-base/restrain"))
    by_name = {line.name: line for line in gradient.check_gradient(tmp_path, config)}
    flash = [line for name, line in by_name.items() if "flash_attention_2" in name]
    assert [line.verdict for line in flash] == ([] if missing else ["pass"] * 2)
    own = f"gradient: {gradient.sum_of(HostRun.of(config).flags).name}"
    assert [name for name, line in by_name.items() if line.verdict == "fail"] == [own, "hook"]
    plain = [line.name for line in gradient.check_gradient(tmp_path, None)]
    assert set(by_name) - set(plain) == {own}


def test_on_a_gpu_the_small_run_shares_one(tmp_path):
    """The flags alone: OpenRLHF's parser takes them, one GPU is enough, and weights go by CUDA IPC."""
    from restrain_openrlhf.config.gpu_layout import GpuLayout

    _, preset, *words = SmallRun(tmp_path, on_one_gpu()).words()
    flags = flags_of(load_run_config(find_config(preset), parse_overrides(words[1::2])))
    assert GpuLayout.of(flags).needed == 1
    assert "vllm.sync_backend" not in on_one_gpu()
    assert vars(parse([]))["vllm.sync_backend"] == "nccl"
    assert flags["vllm.enable_sleep"]
    assert flags["ds.enable_sleep"]
    assert flags["ds.zero_stage"] == 2


def test_the_small_run_trains_an_adapter_like_the_configurations(tmp_path):
    shown = load_run_config(find_config("one_gpu/24gb/qwen3-1.7b-base-lora"))
    changed = {"ds.lora.target_modules": ["q_proj", "v_proj"], "ds.lora.dropout": 0.1}
    config = shown.model_copy(update={"openrlhf": {**shown.openrlhf, **changed}})
    _, preset, *words = shared_run(tmp_path, config).words()
    flags = flags_of(load_run_config(find_config(preset), parse_overrides(words[1::2])))
    assert {name: flags[name] for name in ADAPTER} == {"ds.lora.rank": 32, "ds.lora.alpha": 32, **changed}
    assert gradient.sum_of(flags_of(config)).lora
    for without in (None, load_run_config(find_config("one_gpu/80gb/qwen3-4b-base"))):
        assert not any("lora" in word for word in shared_run(tmp_path, without).words())


def test_a_measurement_that_fails_is_told_with_its_last_lines(tmp_path):
    with pytest.raises(RunError, match=r"tests\.machine\.sleeper` stopped with status 3"):
        run_module("tests.machine.sleeper", ["0", "3"], tmp_path / "log")


def test_a_measurement_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, "LIMIT_SECONDS", 1.0)
    begin, started = gpu_check.start_module, []
    monkeypatch.setattr(gpu_check, "start_module", lambda *words: started.append(begin(*words)) or started[-1])
    with pytest.raises(RunError, match=r"still running after .* minutes, and was ended"):
        run_module("tests.machine.sleeper", ["600"], tmp_path / "log")
    assert not is_alive(started[0].pid)
