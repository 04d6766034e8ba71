"""The preset an adaptation starts from, and how long it trains."""

import pytest

from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.errors import ConfigError
from test_time.adaptation import PRESETS, length_overrides, preset_path
from tests.conftest import ROOT

CPU = ROOT / "configs" / "cpu" / "test_time.yaml"


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (1, "aime24"),
        (40, "amc23"),
        (57, "amc23"),
        (58, "amc83"),
        (203, "amc83"),
        (204, "math500"),
    ],
)
def test_the_preset_of_the_nearest_size(count, name):
    """Nearest by ratio: the border of 40 and 83 is their geometric mean, 57.6, of 83 and 500 203.7."""
    assert preset_path("ttrl", count) == PRESETS / name / "ttrl.yaml"


def test_presets_that_are_none():
    with pytest.raises(ConfigError, match=r"--method 'srt_easy'.*Known: ettrl, restrain, ttrl"):
        preset_path("srt_easy", 30)


def test_steps():
    config = load_run_config(CPU)
    assert length_overrides(None, 20, config) == {}
    # 20 problems are 3 batches of 8: 7 steps need 3 episodes.
    assert length_overrides(7, 20, config) == {"steps": 7, "openrlhf.train.num_episodes": 3}
    assert length_overrides(2, 20, config) == {"steps": 2, "openrlhf.train.num_episodes": 1}
