"""Every preset fits the GPUs that it is for by the estimate, and the page of one GPU says what the command prints."""

import re

import pytest

from restrain_openrlhf.config.command_line import find_config, preset_names
from restrain_openrlhf.config.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.config.memory.estimate import estimate
from restrain_openrlhf.config.memory.lines import GIB
from restrain_openrlhf.config.memory.shape import shape_of
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.machine import devices
from tests.command_line import restrain
from tests.docs.test_pages import reference_pages

__all__ = ["reference_pages"]

NAMES = [name for name in preset_names() if name.startswith("one_gpu/")]


def size_of(name):
    return int(name.split("/")[1].removesuffix("gb"))


def flags_of(name, **changed):
    asked = {**host_flags(load_run_config(find_config(name))), **changed}
    return vars(parse(to_arguments(asked)))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_what_the_command_prints(name, reference_pages, monkeypatch):
    # A machine's own default flags are not the preset's.
    monkeypatch.setattr(devices, "detect", lambda: devices.Device("plain"))
    printed = restrain("show", name, "--memory", "--gpu-memory", size_of(name)).stdout
    (sums,) = re.findall(r"^\| \*\*sum\*\* .*$", printed, re.M)
    (row,) = re.findall(
        rf"^\| `{name}` \| ([\d.]+(?: \| [\d.,]+)+) \|$",
        reference_pages.one_gpu_page().split("## Memory of the presets")[1],
        re.M,
    )
    *phases, left, _, checkpoint, tokens = row.split(" | ")
    assert phases == re.findall(r"\*\*([\d.]+)\*\*", sums)
    assert f": {left} left." in printed
    assert f" tokens: {tokens} for each of " in printed
    assert float(re.search(r"one checkpoint .* ([\d.]+) \|", printed)[1]) == pytest.approx(float(checkpoint), abs=0.051)


def test_hours_by_hand(reference_pages):
    """14,116 prompts by 128 are 111 steps, twenty times; 2,048 × 1,200 tokens a step by eight engines.

    An engine draws 256 rollouts. For a token of each it reads 4.022e9 weights and 256 × 900 tokens' keys and values, 2
    bytes each, where a token has 2 × 36 layers × 8 heads × 128. Six tenths of an A100's 2e12 bytes a second are 7,311
    tokens; an H100's 3.35e12 would be 12,246, and 8,000 are assumed at most.
    Passes: micro-batches of 8 are 2.72 times as long as their mean, so 4 × 2.72 + 6 = 16.9 operations a parameter
    instead of 10; 4.02e9 parameters, eight times 94e12 a second. With gradient checkpointing and micro-batches of 4,
    2.08 times as long, they are 4 × 2.72 + 8 × 2.08 = 27.5, or packed 12. Without the old policy's pass there are 2
    fewer. An H100 computes 3.16 times as fast.
    """
    read = 2 * 4.022e9 + 256 * 900 * 2 * 2 * 36 * 8 * 128
    made = 0.6 * 256 * 2e12 / read
    assert made == pytest.approx(7_311, abs=1)
    (row,) = re.findall(
        r"^\| `dapo14k/qwen3-4b-base/restrain` \| A100 \| 2220 .*$", reference_pages.one_gpu_page(), re.M
    )
    generation, padded, packed = (2_457_600 / 8 / made, *(2_457_600 * work * 4.022e9 / 752e12 for work in (16.87, 10)))
    assert f"= {generation:.0f} + {padded:.0f} |" in row
    hours = [int(cell) for cell in row.split("|")[-3:-1]]
    assert hours == pytest.approx([2220 * (generation + passes) / 3600 for passes in (padded, packed)], abs=1)
    of_cards = dict(re.findall(r"^\| 8 × (A100|H100) \| (.*) \|$", reference_pages.cards_table(), re.M))
    for card, drawn, speed in (("A100", 8 * made, 752e12), ("H100", 8 * 8_000, 8 * 297e12)):
        works = [2_457_600 * work * 4.022e9 / speed for work in (27.54, 12, 10, 8)]
        expected = [2220 * (2_457_600 / drawn + passes) / 3600 for passes in works]
        assert [int(cell.split()[0]) for cell in of_cards[card].split(" | ")] == pytest.approx(expected, abs=1)


# The demo's and the study's models are tiny, and the study trains its own.
OF_GPUS = [name for name in preset_names() if not name.startswith("cpu/")]
PACKED = {"ds.packing_samples": True, "train.dynamic_batch_enable": True}


@pytest.mark.parametrize("changed", [{}, PACKED], ids=["padded", "packed"])
@pytest.mark.parametrize("name", OF_GPUS)
def test_the_peak_is_within_the_gpu(name, changed):
    size = size_of(name) if name.startswith("one_gpu/") else 80
    flags = flags_of(name, **changed)
    assert estimate(flags, shape_of(flags["actor.model_name_or_path"]), size * GIB).peak[1] <= 0.9 * size * GIB
