"""The contract by which a group is known: how the host's rollout actor asks for the rollouts of one prompt."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from restrain_openrlhf.errors import HostError
from restrain_openrlhf.machine.host_methods import HostMethod

ROLLOUTS = 3


@dataclass
class _Recorder:
    """An executor that notes what it is given, and how many rollouts had been started when the first went on."""

    given: list[object] = field(default_factory=list)
    started_together: int = 0

    async def execute(self, *_: Any, sampling_params: object, **__: Any) -> None:
        self.given.append(sampling_params)
        await asyncio.sleep(0)
        self.started_together = self.started_together or len(self.given)


@dataclass(frozen=True)
class SharedGroup:
    """An actor class whose `generate_responses` starts all rollouts of a prompt at once, with one object in common."""

    module: str
    qualname: str

    def check(self) -> None:
        """Call it over an executor of our own. Raises HostError where a group could not be told by that object."""
        owner, name = HostMethod(self.module, f"{self.qualname}.generate_responses", "").locate()
        recorder = _Recorder()
        drawing = getattr(owner, name)(
            SimpleNamespace(executor=recorder),
            prompt="1+1=",
            label="",
            sampling_params=object(),
            max_length=8,
            hf_tokenizer=None,
            num_samples=ROLLOUTS,
        )
        # The thread that imports the host may be running a loop already.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, drawing).result()
        if recorder.started_together != ROLLOUTS or len({id(each) for each in recorder.given}) != 1:
            raise HostError(
                f"{self.module}.{self.qualname}.generate_responses started {recorder.started_together} of {ROLLOUTS} "
                f"rollouts at once, with {len({id(each) for each in recorder.given})} sampling_params objects; groups "
                "are told apart by that object. Install the openrlhf that `restrain doctor` names, unchanged."
            )
