"""A hooked trainer with `advantages: service`: the pair comes with the rollouts, and none may lack it."""

import pytest

torch = pytest.importorskip("torch", reason="needs the training stack: make install")
pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from restrain_openrlhf.devices import detect  # noqa: E402

detect().install()

from restrain_openrlhf.config.yaml_file import load_hook_config  # noqa: E402
from restrain_openrlhf.errors import ConfigError, GroupError  # noqa: E402
from restrain_openrlhf.hook.experience import attach, score_groups  # noqa: E402
from restrain_openrlhf.hook.groups import group_rollouts  # noqa: E402
from restrain_openrlhf.hook.preflight import refuse_without_service  # noqa: E402
from restrain_openrlhf.hook.settings import HookSettings  # noqa: E402
from restrain_openrlhf.method import parse_settings  # noqa: E402
from restrain_openrlhf.reward.front import Front  # noqa: E402
from restrain_openrlhf.reward.metrics import Metrics  # noqa: E402
from restrain_openrlhf.reward.seats import GroupResult, share  # noqa: E402
from tests.hook.test_groups import Letters, rollout  # noqa: E402

RESTRAIN = parse_settings({"name": "restrain", "prompt_weight": "online", "kappa": 2})


def groups_with_replies(answers, score):
    """Rollouts as the host makes them of the service's replies (trainer/ppo_utils/samples_generator.py)."""
    front = Front(None, None, Metrics(), evaluates=True, reward="net_advantage", hold_seconds=1)
    result = GroupResult.of(score, range(len(answers)))
    samples = [rollout("1+1=", rf"\boxed{{{answer}}}") for answer in answers]
    for index, sample in enumerate(samples):
        logs = front._reply(share(result, index)).extra_logs
        sample.info.update({name: torch.tensor([value]) for name, value in logs.items()})
    return group_rollouts(samples, len(answers), Letters())


@pytest.mark.parametrize("answers", [(2, 2, 3, 4), (1, 2, 3, 4), (5, 5, 5, 5)])
def test_what_the_service_sent_is_attached_as_the_hooks_own_would_be(answers):
    plain = [rollout("1+1=", rf"\boxed{{{answer}}}") for answer in answers]
    (own,) = score_groups(group_rollouts(plain, len(answers), Letters()), HookSettings(method=RESTRAIN))
    attach(plain, own)
    groups = groups_with_replies(answers, own)
    (served,) = score_groups(groups, HookSettings(method=RESTRAIN, advantages="service"))
    attach(groups[0].samples, served)
    for mine, theirs in zip(plain, groups[0].samples, strict=True):
        assert torch.equal(mine.rewards, theirs.rewards)
        for name, value in mine.info.items():
            assert torch.equal(value, theirs.info[name]), name
    assert (served.penalized, served.votes) == (own.penalized, own.votes)


def test_a_rollout_without_its_pair_stops_the_run():
    groups = group_rollouts([rollout("1+1=", r"\boxed{2}")] * 2, 2, Letters())
    with pytest.raises(GroupError, match="2 of a prompt's 2 rollouts came without"):
        score_groups(groups, HookSettings(method=RESTRAIN, advantages="service"))


@pytest.mark.parametrize("url", [None, "", "/x/reward_func.py", "http://a/get_reward,/x.py"])
def test_advantages_of_a_service_need_one(url):
    with pytest.raises(ConfigError, match="names no reward service"):
        refuse_without_service(url)
    refuse_without_service("http://user:token@a/get_reward,https://b/get_reward")


def test_where_advantages_come_from_is_configured(tmp_path):
    path = tmp_path / "hook.yaml"
    path.write_text("method: {name: ttrl}\nadvantages: service\n")
    assert load_hook_config(path).advantages == "service"
    path.write_text("method: {name: ttrl}\nadvantages: elsewhere\n")
    with pytest.raises(ConfigError, match="advantages is 'elsewhere'"):
        load_hook_config(path)
