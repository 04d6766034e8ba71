"""A two-turn agent for OpenRLHF: the model writes a query, a calculator answers, and the model gives its final answer.

OpenRLHF loads it by `--train.agent_func_path`. With RESTRAIN, name it in the configuration instead, as
`agent: examples/calculator_agent.py`: trajectories are drawn by it and vote with their final answers, without labels.
A query is a list of products such as `7*6,6*6`; the calculator answers `=42,36>`, and cannot read anything else.
"""

import re
from typing import Any

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

QUERY = re.compile(r"\d\*\d(?:,\d\*\d)*")


def observed(problem: str) -> str:
    """The problem of the premise task as this agent shows it: the last sign says that the calculator may be asked."""
    return problem.removesuffix("=") + "?"


def calculated(query: str) -> str | None:
    """The calculator's answer; None where the query is no list of products."""
    if not QUERY.fullmatch(query):
        return None
    pairs = (product.split("*") for product in query.split(","))
    return "=" + ",".join(str(int(a) * int(b)) for a, b in pairs) + ">"


class Calculation(AgentInstanceBase):  # type: ignore[misc]
    """One trajectory. Its own reward says whether the query could be read, and is a metric beside the vote."""

    def __init__(self) -> None:
        self._turns = 0

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, str]:
        """What the model sees first."""
        return {"observation": observed(states["observation"])}

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The calculator's answer to the first turn; nothing after the second.

        Raises ValueError for a query that the calculator cannot read: the trajectory has no answer then.
        """
        self._turns += 1
        if self._turns > 1:
            return self._said("", done=True)
        answer = calculated(states["action_text"])
        if answer is None:
            raise ValueError(f"the calculator cannot read {states['action_text'][:60]!r}")
        return self._said(answer, done=False, reward=1.0)

    def _said(self, feedback: str, done: bool, reward: float = 0.0) -> dict[str, Any]:
        logs = {"calculations": float(min(self._turns, 1))}
        return {"rewards": torch.tensor(reward), "environment_feedback": feedback, "done": done, "extra_logs": logs}


class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]
    """What OpenRLHF looks for in this file."""

    def __init__(self) -> None:
        super().__init__(Calculation)
