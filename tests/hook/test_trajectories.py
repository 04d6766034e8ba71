"""The user's own agent draws: OpenRLHF's own multi-turn executor over a made-up engine, scored and made experience."""

import asyncio
import textwrap
from types import SimpleNamespace

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from vllm import SamplingParams
from vllm.logprobs import Logprob

from restrain_openrlhf.config.yaml_file import Agent
from restrain_openrlhf.errors import ConfigError, GroupError
from restrain_openrlhf.hook.agent import AgentExecutor
from restrain_openrlhf.hook.policy.experience import LAST_STEP
from restrain_openrlhf.hook.rollout.group_columns import (
    AGENT_FAILED,
    AGENT_REWARD,
    AGENT_TURNS,
    GENERATED,
    MISSING,
    TRUNCATED,
    VOTERS,
    vote_columns,
)
from restrain_openrlhf.hook.rollout.training_data import TrainingRow, Visit, seed_of
from restrain_openrlhf.hook.rollout.trajectories import GatheredRequests, load_executor
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE
from tests.conftest import ROOT
from tests.hook.in_process import Letters, asked, host_arguments, maker_of, written

PROMPT = "1+1="
MAX_LEN = 80
# The tool says what it was asked; "fail" raises, "hang" never ends, and whoever answers at once is done.
TOOL = """
import asyncio, torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
class Instance(AgentInstanceBase):
    def __init__(self): self.turns = 0
    async def reset(self, states, **_):
        assert states["label"] == "", "an agent gets no label"
        return {"observation": states["observation"]}
    async def step(self, states, **_):
        self.turns += 1
        said = states["action_text"]
        if "fail" in said: raise OSError("the tool is away")
        if "hang" in said: await asyncio.sleep(3600)
        done = "?" not in said
        return {"rewards": torch.tensor(0.25), "environment_feedback": "" if done else "[ok]", "done": done,
                "extra_logs": {"asked": torch.tensor([float(self.turns - done)]), "restrain/advantage_pos": 9.0}}
class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self): super().__init__(Instance)
"""


class Actor(RolloutRayActor.__ray_metadata__.modified_class):
    """The host's rollout actor; its engine writes each trajectory's turns, told apart by who began it."""

    def __init__(self, scripts):
        self.executor = AgentExecutor()
        self.scripts = [list(script) for script in scripts]
        self.begun = iter(self.scripts)
        self.asked, self.temperatures = [], []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        await asyncio.sleep(0)
        text = "".join(map(chr, prompt_token_ids))
        self.asked.append((text, sampling_params.seed, sampling_params.max_tokens, sampling_params.detokenize))
        self.temperatures.append((text, sampling_params.temperature))
        script = next(self.begun) if text == PROMPT else next(s for s in self.scripts if s and text.find(s[0]) >= 0)
        turn = script.pop(0) if text == PROMPT else script.pop(1)
        if text == PROMPT:
            script.insert(0, turn)
        return written(turn, sampling_params, lambda token: {token: Logprob(-0.5, rank=1)})


@pytest.fixture
def agent(tmp_path):
    """The tool's agent, with settings on top."""

    def agent(code=TOOL, **settings):
        path = tmp_path / "their_agent.py"
        path.write_text(textwrap.dedent(code))
        return Agent(path=path, **settings)

    return agent


def vote_of(drawn):
    """What the first rollout brings of the whole group."""
    group = drawn[0]["label"]
    return {**vote_columns(group.request, group.score), GENERATED: group.tokens}


def drawn_by(actor, n, label=None):
    label = TrainingRow() if label is None else label
    return asyncio.run(asked(actor, PROMPT, label, n, SamplingParams(max_tokens=40, min_tokens=1), MAX_LEN))


TWO_TURNS = ["a?", r"\boxed{2}"]
OTHER = ["longer?", r"\boxed{3}"]


def test_two_turns_vote_with_their_last_and_keep_what_the_host_has_of_them(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent())
    actor = Actor([TWO_TURNS, ["b?", r"\boxed{2}"], OTHER, [r"\boxed{4}"]])
    drawn = drawn_by(actor, 4)
    assert [row["reward"] for row in drawn] == [1.0, 1.0, 0.0, 0.0]
    # 1+1= | a ? <end> | [ ok ] | \boxed{2} <end>: the policy's tokens are 4..7 and 11..21.
    assert drawn[0]["action_ranges"] == [(4, 7), (11, 21)]
    assert drawn[0]["rollout_log_probs"].tolist() == [0.0] * 4 + [-0.5] * 3 + [0.0] * 4 + [-0.5] * 10
    assert len(drawn[2]["observation_tokens"]) == len(drawn[0]["observation_tokens"]) + 5
    assert [row["extra_logs"][AGENT_TURNS] for row in drawn] == [2.0, 2.0, 2.0, 1.0]
    assert [row["extra_logs"][AGENT_REWARD] for row in drawn] == [0.5, 0.5, 0.5, 0.25]
    assert [row["extra_logs"]["agent/asked"] for row in drawn] == [1.0, 1.0, 1.0, 0.0]
    assert {row["extra_logs"]["agent/restrain/advantage_pos"] for row in drawn} == {9.0}
    assert drawn[0]["extra_logs"][POSITIVE] != 9.0
    assert vote_of(drawn)[GENERATED] == 3 + 10 + 3 + 10 + 8 + 10 + 10
    assert all(detokenize for *_, detokenize in actor.asked), "an agent reads text"


def test_one_failed_trajectory_is_a_missing_answer_with_what_it_had_written(hooked, agent, caplog):
    hooked({"name": "ttrl"}, agent=agent())
    drawn = drawn_by(Actor([TWO_TURNS, ["b?", r"\boxed{2}"], ["c?", "fail"], ["fail"]]), 4)
    assert [vote_of(drawn)[name] for name in (VOTERS, MISSING)] == [4.0, 2.0]
    assert [row["extra_logs"][AGENT_FAILED] for row in drawn] == [0.5] * 4
    assert Letters().decode(drawn[2]["observation_tokens"], True) == "1+1=c?[ok]fail"
    assert drawn[2]["action_ranges"] == [(4, 7), (11, 16)]
    assert drawn[2]["rollout_log_probs"].tolist() == [0.0] * 4 + [-0.5] * 3 + [0.0] * 4 + [-0.5] * 5
    assert drawn[2]["extra_logs"][NEGATIVE] < 0
    assert drawn[2]["extra_logs"]["agent/asked"] == 1.0, "the mean of the others: all have the same names"
    assert "the tool is away" in caplog.text


def test_a_prompt_that_fails_whole_has_no_vote_and_four_in_a_row_are_an_error_with_the_first_reason(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent())
    actor = Actor([["fail"]] * 6 + [TWO_TURNS, OTHER] + [["fail"]] * 8)
    for _ in range(3):
        assert [row["extra_logs"][AGENT_FAILED] for row in drawn_by(actor, 2)] == [1.0, 1.0]
    assert [row["extra_logs"][AGENT_FAILED] for row in drawn_by(actor, 2)] == [0.0, 0.0]
    for _ in range(3):
        assert vote_of(drawn_by(actor, 2))[MISSING] == 2.0
    with pytest.raises(
        GroupError, match=r"4 prompts in a row failed. The first error for '1\+1=': OSError\('the tool is"
    ):
        drawn_by(actor, 2)


def test_a_tool_that_never_answers_fails_its_trajectory_after_its_time(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent(trajectory_seconds=0.2))
    drawn = drawn_by(Actor([TWO_TURNS, ["hang"]]), 2)
    assert [row["extra_logs"][AGENT_FAILED] for row in drawn] == [0.5, 0.5]


def test_an_agent_that_fails_before_it_asks_leaves_the_prompt_and_no_token_to_train_on(hooked, agent):
    code = TOOL + textwrap.dedent("""
        BEGUN = []
        class AgentExecutor(AgentExecutor):
            async def execute(self, *args, **kwargs):
                BEGUN.append(1)
                if len(BEGUN) == 2: raise KeyError("no environment")
                return await super().execute(*args, **kwargs)
        """)
    hooked({"name": "ttrl"}, agent=agent(code))
    drawn = drawn_by(Actor([TWO_TURNS, ["b?", r"\boxed{2}"]]), 3)
    assert Letters().decode(drawn[1]["observation_tokens"], True) == PROMPT
    assert (drawn[1]["action_ranges"], drawn[1]["rollout_log_probs"].tolist()) == ([], [0.0] * 4)


def test_an_error_of_the_engine_is_not_the_agents(hooked, agent):
    class Broken(Actor):
        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            if len(self.asked) == 1:
                raise RuntimeError("the engine is dead")
            return await super().generate(prompt_token_ids, sampling_params, multi_modal_data)

    hooked({"name": "ttrl"}, agent=agent())
    with pytest.raises(RuntimeError, match="the engine is dead"):
        drawn_by(Broken([TWO_TURNS, OTHER]), 2)


def test_a_trajectory_that_was_cut_off_or_fills_its_length_has_no_answer(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent())
    filling = "b?" + "x" * (MAX_LEN - 4 - 3)
    drawn = drawn_by(Actor([TWO_TURNS, [r"\boxed{2}~"], [filling], ["c?", r"\boxed{2}"]]), 4)
    assert vote_of(drawn)[TRUNCATED] == 2.0
    assert [row["reward"] for row in drawn] == [1.0, 0.0, 0.0, 1.0]
    assert len(drawn[2]["observation_tokens"]) >= MAX_LEN


@pytest.mark.parametrize(
    ("settings", "rewards"),
    [({}, [1.0, 0.0, 1.0]), ({"turns": "all"}, [1.0, 0.0, 1.0]), ({"turns": "all", "tag": "final"}, [0.0, 1.0, 1.0])],
)
def test_of_several_answers_the_last_turns_the_last_of_all_or_the_tags_votes(hooked, agent, settings, rewards):
    """The last turns say 5, nothing and 5; the last boxes of all turns are 5, 2 and 5; the last tags 7, 2 and 2."""
    hooked({"name": "ttrl"}, agent=agent(**settings))
    scripts = [
        ["<final>7</final>x?", r"\boxed{5}"],
        [r"<final>1</final><final>2</final>\boxed{2}y?", "so"],
        ["<final>2</final>z?", r"\boxed{5}"],
    ]
    drawn = drawn_by(Actor(scripts), 3)
    assert [row["reward"] for row in drawn] == rewards
    assert vote_of(drawn)[MISSING] == (0.0 if settings else 1.0)


def test_every_turn_of_every_trajectory_has_a_seed_of_its_own_that_follows_from_its_place(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent())
    runs = []
    for _ in range(2):
        actor = Actor([TWO_TURNS, OTHER])
        drawn_by(actor, 2, TrainingRow(visit=Visit(0, 77)))
        runs.append({seed for _, seed, *_ in actor.asked})
    assert (
        runs[0]
        == runs[1]
        == {seed_of("rollout", seed_of("rollout", 77, place), turn) for place in (0, 1) for turn in (0, 1)}
    )
    assert len(runs[0]) == 4


def test_trajectories_of_one_group_do_not_share_parameters(hooked, agent):
    """The host hands all n calls of a group one object, and an agent may change it from turn to turn."""
    change = 'if said.startswith("a"): states["sampling_params"].temperature = 0.25'
    hooked({"name": "ttrl"}, agent=agent(TOOL.replace("done = ", f"{change}\n        done = ")))
    actor = Actor([TWO_TURNS, OTHER])
    drawn_by(actor, 2)
    assert sorted(actor.temperatures) == [
        ("1+1=", 1.0),
        ("1+1=", 1.0),
        ("1+1=a?\0[ok]", 0.25),
        ("1+1=longer?\0[ok]", 1.0),
    ]


def test_evaluation_is_drawn_by_the_same_agent_without_its_label_and_a_failed_one_is_wrong(hooked, agent):
    hooked({"name": "ttrl"}, agent=agent())
    drawn = drawn_by(Actor([TWO_TURNS, OTHER, ["fail"]]), 3, label="2")
    assert [(row["reward"], row["label"]) for row in drawn] == [(1.0, "2"), (0.0, "2"), (0.0, "2")]
    assert [row["extra_logs"] for row in drawn] == [{}] * 3


def test_without_our_entry_point_the_net_advantage_is_the_reward_and_failures_are_counted(agent_alone, agent):
    agent_alone(f"method: {{name: restrain, kappa: 2, prompt_weight: online}}\nagent: {agent().path}")
    drawn = drawn_by(Actor([TWO_TURNS, ["b?", r"\boxed{2}"], OTHER, ["fail"]]), 4, label="")
    for row in drawn:
        assert row["reward"] == row["extra_logs"][POSITIVE] + row["extra_logs"][NEGATIVE]
        assert row["rollout_log_probs"] is None, "the host reads none"
    assert {row["extra_logs"][AGENT_FAILED] for row in drawn} == {0.25}


def test_in_the_hosts_trainer_the_mask_leaves_observations_out_and_logs_become_means(hooked, agent):
    """From generate_responses to the trainer's experience by the host's own code; a failed trajectory, too."""
    hooked({"name": "ttrl"}, agent=agent(), logprob_gap_limit=None)
    arguments = host_arguments(1, 4)
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    generator = SamplesGenerator(SimpleNamespace(args=arguments), None, None, Letters(), [])
    rows = drawn_by(Actor([TWO_TURNS, OTHER, [r"\boxed{2}"], ["c?", "fail"]]), 4)
    samples = [generator._process_response_into_experience(row, max_len=MAX_LEN) for row in rows]
    # Masks begin at the second token.
    assert samples[0].action_mask[0].tolist() == [0] * 3 + [1] * 3 + [0] * 4 + [1] * 10
    maker = maker_of(arguments)
    experiences = maker.make_experience_batch(samples)
    assert not any(name.startswith("agent/") for each in experiences for name in each.info)
    logged = LAST_STEP[maker].scalars()
    assert logged[AGENT_FAILED] == 0.25
    assert logged["agent/asked"] == pytest.approx((1 + 1 + 0 + 2 / 3) / 4)
    assert logged[AGENT_TURNS] == pytest.approx((2 + 2 + 1 + 2) / 4)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", "has no class AgentExecutor that inherits from openrlhf"),
        ("class AgentExecutor: pass", "has no class AgentExecutor that inherits from openrlhf"),
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError"),
        ("def broken(:", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_file_that_openrlhf_could_not_load_is_refused(agent, code, problem):
    with pytest.raises(ConfigError, match=problem):
        load_executor(agent(code))


def test_our_own_agent_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="is this project's own agent"):
        load_executor(Agent(path=ROOT / "restrain_openrlhf" / "hook" / "agent.py"))
    with pytest.raises(ConfigError, match=r"nowhere\.py cannot be read .* Name the agent's Python file"):
        load_executor(Agent(path=tmp_path / "nowhere.py"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('output["action_ranges"] = [(4, 99)]', r"action_ranges \[\(4, 99\)\] in 21 tokens"),
        ('output["action_ranges"] = [(11, 21), (4, 7)]', "action_ranges"),
        ('output["rollout_log_probs"] = [0.0]', "1 rollout_log_probs for 21 observation_tokens"),
        ('output["extra_logs"] = {"name": "words"}', "have agent/name = 'words', which is not a number"),
    ],
)
def test_an_executor_whose_output_would_train_other_tokens_is_refused(hooked, agent, change, problem):
    code = TOOL + textwrap.dedent(f"""
        class AgentExecutor(AgentExecutor):
            async def execute(self, *args, **kwargs):
                output = await super().execute(*args, **kwargs)
                {change}
                return output
        """)
    hooked({"name": "ttrl"}, agent=agent(code))
    with pytest.raises(ConfigError, match=problem):
        drawn_by(Actor([TWO_TURNS, ["b?", r"\boxed{2}"]]), 2)


def test_the_offline_engine_draws_what_comes_together_at_once_and_an_error_reaches_all_who_wait():
    batches = []

    class Llm:
        def generate(self, requests, parameters, use_tqdm):
            batches.append([request["prompt_token_ids"][0] for request in requests])
            if parameters[0] == "broken":
                raise RuntimeError("out of memory")
            return [(request["prompt_token_ids"][0], each) for request, each in zip(requests, parameters, strict=True)]

    async def two_turns(engine, number):
        first = await engine.generate([number], "one")
        return first, await engine.generate([number + 10], "two")

    async def all_of_them():
        engine = GatheredRequests(Llm())
        found = await asyncio.gather(*[two_turns(engine, number) for number in range(3)])
        broken = await asyncio.gather(*[engine.generate([1], "broken") for _ in range(2)], return_exceptions=True)
        return found, broken

    found, broken = asyncio.run(all_of_them())
    assert found == [((number, "one"), (number + 10, "two")) for number in range(3)]
    assert batches[:2] == [[0, 1, 2], [10, 11, 12]]
    assert [str(each) for each in broken] == ["out of memory"] * 2


def test_the_shipped_example_draws_two_turns_and_fails_where_its_query_cannot_be_read(hooked, monkeypatch):
    monkeypatch.setattr("tests.hook.test_trajectories.PROMPT", "76....*66....?")
    hooked({"name": "ttrl"}, agent=Agent(path=ROOT / "examples" / "calculator_agent.py"))
    actor = Actor([["7*6,6*6", r"\boxed{26}"], ["7*6,6*5", r"\boxed{20}"], ["7*6, 6"], ["7*6,06*6"]])
    drawn = asyncio.run(asked(actor, "76....*66....=", TrainingRow(), 4, max_length=MAX_LEN))
    assert Letters().decode(drawn[0]["observation_tokens"], True) == r"76....*66....?7*6,6*6=42,36>\boxed{26}"
    assert [row["extra_logs"][AGENT_FAILED] for row in drawn] == [0.5] * 4
    assert drawn[0]["extra_logs"]["agent/calculations"] == 1.0
