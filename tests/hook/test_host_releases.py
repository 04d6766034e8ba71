"""Every OpenRLHF release that is supported but the newest: the hook's own tests on it, or the agent's file alone."""

import json
import math

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine import host_releases
from restrain_openrlhf.machine.host_releases import RELEASES, Way, check_version, range_of
from tests.host_releases import others, python_on

pytestmark = [pytest.mark.host, pytest.mark.timeout(900)]
WITH_HOOK, AGENT_ALONE = others(Way.HOOK), others(Way.AGENT, but=Way.HOOK)
# Contract; flags and presets; the gradient of a real step against the paper's; each method's advantages in the host.
TESTS = [
    "tests/hook/test_instrument.py",
    "tests/config/test_recorded_flags.py",
    "tests/hook/test_gradient.py",
    "tests/hook/test_methods_in_the_host.py",
]
BOXED = [r"\boxed{2}", r"\boxed{2}", r"\boxed{3}", "no answer"]
CASES = {
    "plain": {"text": "method: {name: ttrl}", "responses": BOXED, "n": 4},
    "penalised": {
        "text": "method: {name: restrain, kappa: 3, delta: 2, prompt_weight: 0.5}",
        "responses": BOXED,
        "n": 4,
    },
    "votes": {
        "text": "method: {name: ttrl, votes: 5, train_on: 2}",
        "responses": [r"\boxed{2}", *[r"\boxed{3}"] * 3, r"\boxed{2}~"],
        "n": 2,
    },
}
# By hand. Of four rollouts two have the majority's answer: (1 - 1/2) by the sample's deviation, √(1/3). The penalty is
# u_x times -delta. All responses are equally long, so that the mean that the host takes off is the rollouts'.
HALF = math.sqrt(3) / 2
GOLDEN = {
    "plain": ([HALF, HALF, -HALF, -HALF], [HALF, HALF, -HALF, -HALF]),
    "penalised": ([-1, -1, -1, -1], [0, 0, 0, 0]),
}


@pytest.mark.long
@pytest.mark.parametrize("release", WITH_HOOK)
def test_the_hook_holds_on_every_release_of_its_range(release):
    done = python_on(release, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *TESTS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


@pytest.mark.long
@pytest.mark.parametrize("release", AGENT_ALONE)
def test_the_agents_file_alone_draws_and_scores_groups_on_older_releases(release):
    done = python_on(release, "-m", "tests.hook.agent_alone_case", json.dumps(CASES))
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for name, (rewards, advantages) in GOLDEN.items():
        assert found[name]["rewards"] == pytest.approx(rewards, abs=1e-5)
        assert found[name]["advantages"] == pytest.approx(advantages, abs=1e-5)
    assert [found[name]["voters"][0] for name in CASES] == [4, 4, 5]
    assert found["votes"]["rewards"][0] < 0 < found["votes"]["rewards"][1]


@pytest.mark.parametrize(
    ("release", "way", "said"),
    [
        ("0.12.0", Way.HOOK, ["the hook works only on 0.10.4 to 0.11.2", "Install openrlhf==0.11.2, the nearest"]),
        (
            "0.10.3",
            Way.HOOK,
            ["Install openrlhf==0.10.4", "On 0.10.3, the agent's file under OpenRLHF's own"],
        ),
        ("0.9.8", Way.AGENT, ["Install openrlhf==0.9.9", "On 0.9.8, the scoring service as OpenRLHF's remote reward"]),
        ("0.8.5", Way.HOOK, ["OpenRLHF 0.8.5 is installed", "Install openrlhf==0.10.4"]),
        ("0.7.5", Way.AGENT, ["works only on 0.9.9 to 0.11.2", "Install openrlhf==0.9.9"]),
        (None, Way.HOOK, ["OpenRLHF is not installed. Install openrlhf 0.11.2"]),
    ],
)
def test_another_release_is_refused_with_the_nearest_that_works(release, way, said, monkeypatch):
    def version(name):
        if release is None:
            raise host_releases.PackageNotFoundError(name)
        return release

    monkeypatch.setattr(host_releases, "version", version)
    with pytest.raises(HostError) as error:
        check_version(way)
    assert all(words in str(error.value) for words in said), error.value
    others_named = "On " in str(error.value)
    assert others_named == (release in RELEASES and bool(RELEASES[release].ways))


@pytest.mark.parametrize("way", Way)
def test_a_way_works_on_a_range_and_every_release_of_it_is_taken(way, monkeypatch):
    """A range with a gap would be named wrongly; the URL's has one, and the page says which."""
    names = list(RELEASES)
    inside = [way in RELEASES[name].ways for name in names]
    gaps = [name for name in names[: len(inside) - inside[::-1].index(True)] if way not in RELEASES[name].ways]
    assert all(name.startswith("0.8.") for name in gaps)
    assert bool(gaps) == (way is Way.URL)
    for name in (name for name in names if way in RELEASES[name].ways):
        monkeypatch.setattr(host_releases, "version", lambda _, name=name: name)
        assert check_version(way) == name
    assert range_of(Way.HOOK) == "0.10.4 to 0.11.2"


def test_a_flag_that_a_release_cannot_serve_is_refused_there_alone(monkeypatch):
    from restrain_openrlhf.config.checks.contradictions import refused_by_release

    flags = {"rollout.vllm_generate_batch_size": 64}
    for release, refused in (("0.11.1", False), ("0.11.0", True), ("0.10.4", True)):
        monkeypatch.setattr(host_releases, "version", lambda _, release=release: release)
        reason = refused_by_release(flags, None, None)
        assert (reason is not None) == refused
        assert not refused or reason.startswith("rollout.vllm_generate_batch_size is 64: OpenRLHF up to 0.11.0 throws")
        assert refused_by_release({"rollout.vllm_generate_batch_size": None}, None, None) is None


@pytest.mark.parametrize(
    ("found", "stage", "refused"),
    [("0.19.1", 1, True), ("0.19.3", 2, True), ("0.19.4", 2, False), ("0.19.1", 3, False), ("0.19.1", 0, False)],
)
def test_dynamic_batches_are_refused_where_deepspeed_would_lose_gradients(found, stage, refused, monkeypatch):
    """With DeepSpeed 0.19.1 a step's gradient was 0.817 off the paper's (docs/journeys/integration.md)."""
    from types import SimpleNamespace

    from restrain_openrlhf.config.host_flags import parse
    from restrain_openrlhf.config.this_machine import refuse_unsupported
    from restrain_openrlhf.errors import ConfigError
    from restrain_openrlhf.hook.fixes.gradient_accumulation import get_ds_train_config

    def outcome(call):
        try:
            call()
        except (ConfigError, HostError) as error:
            return "would then use only the last micro-batch's gradient" in str(error)
        return False

    monkeypatch.setattr(host_releases, "version", lambda _name: found)
    strategy, nothing = SimpleNamespace(use_dynamic_batch=True, stage=stage), SimpleNamespace(name="", unsupported=())
    words = ["--train.dynamic_batch_enable", "--ds.zero_stage", str(stage)]
    assert outcome(lambda: refuse_unsupported(nothing, vars(parse(words)))) == refused
    assert outcome(lambda: get_ds_train_config(lambda: {}, strategy, (), {})) == refused
    assert not outcome(lambda: refuse_unsupported(nothing, vars(parse(words[1:]))))
