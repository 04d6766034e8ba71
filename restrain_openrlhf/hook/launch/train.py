"""Trains a configuration from the start or from its last checkpoint: checks it, starts OpenRLHF, follows the steps."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from restrain_openrlhf.config.this_machine import HostRun, refuse_small_disk
from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.data.jsonl import FollowedFile
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.hook.launch.preflight import CHECKED, check_inputs
from restrain_openrlhf.hook.launch.progress import OnPhase, OnStep
from restrain_openrlhf.hook.launch.stop_rules import Watch, with_labels
from restrain_openrlhf.machine.processes import ending_with_us, error_tail, python_module, start_module
from restrain_openrlhf.records.folder import Completion, RunFolder, RunRecord
from restrain_openrlhf.records.inputs import MODEL
from restrain_openrlhf.records.metrics import StepRow, each_step, read_steps, step_row

POLL_SECONDS = 0.5
ENTRY_POINT = "restrain_openrlhf.hook.train_ppo_ray"


# Gets all steps so far; returns why the run should end now, or None.
StopRule = Callable[[Sequence[StepRow]], str | None]


def train(
    config: RunConfig,
    on_step: OnStep = lambda _row, _total: None,
    on_phase: OnPhase = lambda _name: None,
    on_read: OnPhase = lambda _summary: None,
) -> RunFolder:
    """Train to the end. A folder with part of this run is resumed; one with a completed run is returned unchanged.

    `on_read` gets a line that says what was read as prompts. `on_phase` is called when everything is checked and the
    host is started. `on_step` gets the row of each step, including those of an earlier start, and the run's number of
    steps. If a rule of `stop:` fires, the run ends for good (`RunFolder.completion`) without a last model; a completed
    run is judged again by today's rules. Raises ConfigError, DataError or ReferencePassError before anything heavy
    starts, RunError if the host stops early.
    """
    folder, run = RunFolder(config.run_dir), HostRun.startable(config)
    total = run.steps(check_inputs(run.config, run.flags, on_read))
    if not folder.completed.exists():
        refuse_small_disk(run.flags, total)

    lock = folder.lock()
    try:
        folder.claim(RunRecord(run.config, run.stated))
        watch = Watch.of(run.config, run.config.stop) if run.config.stop else None
        completion = folder.completion()
        if completion is None:
            on_phase("starting Ray and vLLM; a machine's first run may compile kernels for minutes")
            rule = watch.should_stop if watch else None
            watched = Watched(FollowedFile(folder.metrics), lambda row: on_step(row, total), rule)
            stopped = _run_host(folder, run.words(), lock, watched)
            steps = max((row.step for row in each_step(folder.metrics)), default=0)
            completion = Completion(steps=steps, stopped=stopped)
        base = str(run.flags[MODEL])
        judged = watch.judged(completion, read_steps(folder.metrics), base) if watch else completion
        ended = with_labels(folder, judged, base)
        if ended != folder.completion():
            folder.mark_completed(ended)
    finally:
        os.close(lock)
    return folder


def command(folder: RunFolder, words: list[str]) -> list[str]:
    """The command of the training process: OpenRLHF's entry point with the hook on."""
    return python_module(ENTRY_POINT, ["--restrain.config", str(folder.hook_config), *words])


def _run_host(folder: RunFolder, words: list[str], lock: int, watched: "Watched") -> str | None:
    """Run the host. Returns why the run was stopped, or None if the host reached its end."""
    start = folder.log.stat().st_size if folder.log.exists() else 0
    given = ["--restrain.config", folder.hook_config, *words, CHECKED]
    with ending_with_us() as running:
        host = start_module(ENTRY_POINT, given, folder.log, pass_fds=(lock,))
        running.append(host)
        while host.poll() is None:
            if reason := watched.look():
                return reason
            time.sleep(POLL_SECONDS)
        watched.report()
    if host.returncode != 0:
        why = error_tail(folder.log, start)
        raise RunError(f"OpenRLHF stopped with status {host.returncode}.\n{why}\nLog: {folder.log}")
    return None


@dataclass
class Watched:
    """Follows the steps that a run writes, and reports each once. They are only kept where there is a stop rule."""

    file: FollowedFile
    on_step: Callable[[StepRow], None]
    should_stop: StopRule | None
    _reported: int = 0
    _rows: list[StepRow] = field(default_factory=list)

    def look(self) -> str | None:
        """Report the new steps, and return why the run should end now, or None."""
        return self.should_stop(self._rows) if self.report() and self.should_stop else None

    def report(self) -> bool:
        """Report the new steps, and return whether there were any.

        Steps that a resumed run repeats are not reported again.
        """
        before = self._reported
        for row in map(step_row, self.file.new_rows()):
            self._keep(row)
            if row.step > self._reported:
                self._reported = row.step
                self.on_step(row)
        return self._reported > before

    def _keep(self, row: StepRow) -> None:
        """Keep a step. It replaces an earlier row of itself and of later steps, from before the run resumed."""
        if self.should_stop is not None:
            while self._rows and self._rows[-1].step >= row.step:
                self._rows.pop()
            self._rows.append(row)
