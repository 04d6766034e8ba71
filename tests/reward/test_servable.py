"""A reward service refuses the methods that it could not stand for, before it listens."""

import pytest

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.reward.servable import refuse_unservable
from restrain_openrlhf.reward.settings import load_service_config


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"name": "ettrl"}, "'ettrl' draws its rollouts itself"),
        ({"name": "ttrl", "votes": 8, "train_on": 4}, "'ttrl' draws its rollouts itself"),
        ({"name": "srt_easy"}, "'srt_easy' trains on some of the prompts only"),
    ],
)
def test_what_only_a_trainer_can_do_is_refused(block, message):
    with pytest.raises(ConfigError, match=message):
        refuse_unservable(build(parse_settings(block)))


@pytest.mark.parametrize("name", ["restrain", "ttrl", "srt_offline", "grpo_gold"])
def test_the_others_can_be_served(name):
    refuse_unservable(build(parse_settings({"name": name})))


def test_it_is_said_when_the_configuration_is_read(tmp_path):
    (tmp_path / "serve.yaml").write_text("method: {name: ettrl}\nservice: {group_size: 60, end_of_text: []}\n")
    with pytest.raises(ConfigError, match="which a reward service cannot"):
        load_service_config(tmp_path / "serve.yaml")
