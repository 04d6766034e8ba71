"""The host's own saving under the hook, killed by SIGKILL between two of its writes; prints what is left as JSON.

Run as a program, for an empty folder. Each case is a process of its own, killed where its stand-in for what DeepSpeed
or the tokenizer writes says so; all else is the host's strategy.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.hook.install.instrument import install
from restrain_openrlhf.machine.devices import detect

detect().install()
install()

import torch  # noqa: E402 - the stand-ins come first
from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: E402
from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

WHOLE = {"model_states.pt": "weights", "optim_states.pt": "moments"}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Engine(DeepSpeedEngine):
    """Writes as DeepSpeed does: the parts, then `latest` if it is asked to."""

    def __init__(self):
        torch.nn.Module.__init__(self)
        self.module = torch.nn.Linear(1, 1)

    def __del__(self):
        pass

    dies = False

    def save_checkpoint(self, save_dir, tag=None, client_state=None, save_latest=True):
        folder = Path(save_dir) / tag
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in WHOLE.items():
            (folder / name).write_text(content)
            if self.dies:
                die()
        if save_latest:
            (Path(save_dir) / "latest").write_text(tag)


class Tokenizer:
    """The model's own; killed before it writes, after the weights."""

    def save_pretrained(self, _folder):
        die()


def strategy():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    made = DeepspeedStrategy.__new__(DeepspeedStrategy)
    made.args = SimpleNamespace(ds=SimpleNamespace(zero_stage=2, tensor_parallel_size=1))
    return made


def save(by, folder, *tags, dies_at=None, most=1, metrics=()):
    """One checkpoint after the other, as the host's trainer asks for them (trainer/ray/ppo_actor.py)."""
    engine = Engine()
    for tag, metric in zip(tags, metrics or [None] * len(tags), strict=True):
        engine.dies = tag == dies_at
        by.save_ckpt(engine, str(folder), tag, most, float("inf"), {}, metric_value=metric, metric_key="pass1")


def one_checkpoint_alone(out):
    save(strategy(), out / "_actor", "global_step1", "global_step2", dies_at="global_step2")


def the_best_one(out):
    save(strategy(), out / "_actor", "best_global_step1", "best_global_step2", dies_at="best_global_step2")


def gone_on_after_a_kill(out):
    """A first process was killed at step 4; the second goes on from step 2 and is killed at step 4 again."""
    by = strategy()
    (out / "_actor" / "global_step4").mkdir(parents=True)
    (out / "_actor" / "global_step4" / "model_states.pt").write_text("half")
    later = time.time() + 1000  # it was written after step 2's
    os.utime(out / "_actor" / "global_step4", (later, later))
    save(by, out / "_actor", "global_step2", "global_step4", dies_at="global_step4", most=2)


def all_are_written(out):
    """Nothing is killed: three are kept, the new one among them, though its metric is the worst."""
    tags = [f"global_step{step}" for step in range(1, 7)]
    save(strategy(), out / "_actor", *tags, most=3, metrics=[0.1, 0.9, 0.8, 0.5, 0.7, 0.2])
    os._exit(0)


def a_model_beside_a_whole_one(out):
    """Step 2's model is whole; the kill comes between step 4's DeepSpeed checkpoint and the end of its model."""
    by, model = strategy(), AutoModelForCausalLM.from_pretrained(ADDITION.model)
    by.save_model(model, AutoTokenizer.from_pretrained(ADDITION.model), str(out / "global_step2_hf"))
    save(by, out / "_actor", "global_step4")
    by.save_model(model, Tokenizer(), str(out / "global_step4_hf"))


def the_model_at_the_end(out):
    """It is written a second time, to a folder that has a whole one, and by OpenRLHF's defaults the checkpoints."""
    by, model = strategy(), AutoModelForCausalLM.from_pretrained(ADDITION.model)
    save(by, out / "checkpoints" / "_actor", "global_step1")
    by.save_model(model, AutoTokenizer.from_pretrained(ADDITION.model), str(out))
    by.save_model(model, AutoTokenizer.from_pretrained(ADDITION.model), str(out))
    by.save_model(model, Tokenizer(), str(out))


CASES = (
    one_checkpoint_alone,
    the_best_one,
    gone_on_after_a_kill,
    all_are_written,
    a_model_beside_a_whole_one,
    the_model_at_the_end,
)


def left(folder):
    return {
        str(path.relative_to(folder)): path.read_text() if path.name in (*WHOLE, "latest") else path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main():
    out, found = Path(sys.argv[1]), {}
    for case in CASES:
        folder = out / case.__name__
        folder.mkdir()
        child = os.fork()
        if child == 0:
            try:
                case(folder)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
        found[case.__name__] = {"signal": ended, "left": left(folder)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
