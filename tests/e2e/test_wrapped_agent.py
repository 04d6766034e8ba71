"""A real run over a user's own agent of two turns: the votes train it, and its reward and its logs are metrics."""

import statistics
from collections import Counter
from collections.abc import Sequence

import pytest

from restrain_openrlhf.records.kept import KeptGroup, read_kept
from tests.e2e.conftest import Job

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
# The model answers, reads the problem once more, and answers again. The reward prefers long turns. It counts the tokens
# that the policy wrote: a token is a character or `\boxed{`, and a turn that was not cut off has an end.
AGENT = r"""
import re, torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
class Instance(AgentInstanceBase):
    def __init__(self): self.turns = self.written = 0
    async def reset(self, states, **_):
        self.problem = states["observation"]
        return {"observation": self.problem}
    async def step(self, states, **_):
        self.turns += 1
        text = re.findall(r"\\boxed\{|<\w+>|[\s\S]", states["action_text"].removesuffix("<eos>"))
        written = min(len(text) + 1, states["sampling_params"].max_tokens)
        self.written += written
        done = self.turns == 2
        return {"rewards": torch.tensor(float(written)), "environment_feedback": "" if done else self.problem,
                "done": done, "extra_logs": {"written": self.written, "asked_twice": float(done)}}
class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self): super().__init__(Instance)
"""


def of_the_vote(group: KeptGroup) -> Sequence[float]:
    """TTRL's advantages by a count of the answers, which are numbers here: the majority's against all others'."""
    answers = [int(each.answer) if (each.answer or "").isdigit() else each.answer for each in group.rollouts]
    votes = Counter(each for each in answers if each is not None).most_common(1)
    rewards = [float(each == votes[0][0]) if votes else 0.0 for each in answers]
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(each - mean) / deviation if deviation else 0.0 for each in rewards]


def test_an_agent_of_two_turns_is_trained_by_the_votes_on_its_last_answers(job: Job):
    agent = job.folder / "their_agent.py"
    agent.write_text(AGENT)
    sizes = ("openrlhf.data.max_len=80", "openrlhf.rollout.max_new_tokens=60", "openrlhf.data.max_samples=16")
    done = job.train("method={name: ttrl}", f"agent={agent}", "rollouts.keep=8", *sizes)
    assert done.returncode == 0, done.stderr[-2000:] + job.log()[-3000:]
    rows, groups = job.rows(), list(read_kept(job.run_dir))
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["restrain/agent_failed"] == 0
        assert 1 < row["restrain/agent_turns"] == 1 + row["agent/asked_twice"]
        assert row["restrain/agent_reward"] == pytest.approx(row["agent/written"]), "a metric, and no more than that"
        assert row["restrain/trained_tokens"] == pytest.approx(64 * row["agent/written"]), "none that the agent said"
        # The model has never seen two answers in a row: 0.02 in bf16. Of other tokens it would be some nats.
        assert row["restrain/logprob_gap"] < 0.1, "vLLM's log-probabilities are of the policy's tokens, in both turns"
    assert len(groups) == 16
    assert not any(group.prompt in rollout.response for group in groups for rollout in group.rollouts)
    for group in groups:
        found = [rollout.advantage_pos + rollout.advantage_neg for rollout in group.rollouts]
        assert found == pytest.approx(of_the_vote(group), abs=1e-4)
    assert sum(rollout.advantage_pos > 0 for group in groups for rollout in group.rollouts) >= 16
