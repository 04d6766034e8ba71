"""`restrain show CONFIG --memory`: the table, and what a user may get wrong."""

from tests.command_line import restrain

PRESET = "dapo14k/qwen3-4b-base/restrain"


def test_the_table_has_formulas_phases_and_the_peak():
    done = restrain("show", PRESET, "--memory", "--gpu-memory", "80")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3-4B-Base: 4,022,468,096 parameters." in done.stdout
    (states,) = [line for line in done.stdout.splitlines() if line.startswith("| fp32 master weights and Adam")]
    # 4,022,468,096 × 12 / 8 bytes are 5.62 GiB, in both parts of backward and in the optimizer's step.
    assert [cell.strip() for cell in states.strip("|").split("|")] == [
        "fp32 master weights and Adam", "4,022,468,096 × 12 / 8", "", "", "5.6", "5.6", "5.6", "",
    ]  # fmt: skip
    assert "of the GPU's 80.0:" in done.stdout


def test_a_model_of_unknown_shape_is_refused_with_the_way_out():
    assert "work only with --memory" in restrain("show", PRESET, "--gpu-memory", "80").stderr
    done = restrain("show", PRESET, "--memory", "--set", "openrlhf.actor.model_name_or_path=no-one/no-model")
    assert done.returncode == 2
    assert "no-one/no-model: its shape is not known here" in done.stderr
    assert "--model-config FILE" in done.stderr
