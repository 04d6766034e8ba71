"""How the shipped models were made: what they were taught, and the bounds that each had to be in."""

import random

import pytest

from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION, PREMISE, TASKS

transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

from tools.calibration import BOUNDS, PREMISE_BOUNDS, calibrate  # noqa: E402
from tools.teaching import RECIPES  # noqa: E402


@pytest.mark.parametrize("name", TASKS)
def test_what_a_model_was_taught_fits_the_demo_s_budget(name):
    """Where a right response is cut, only wrong ones vote: giving up won every such problem of programs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(ADDITION.model)
    budget, rng = load_run_config(find_config(TASKS[name].preset)).openrlhf, random.Random(0)
    most = int(budget["rollout.max_new_tokens"])
    for text, response in (RECIPES[name][0].example(rng) for _ in range(3000)):
        assert len(tokenizer(response, add_special_tokens=False)["input_ids"]) + 1 <= most, response
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) + most <= int(budget["data.max_len"])


def test_the_shipped_model_is_inside_its_bounds():
    model = transformers.AutoModelForCausalLM.from_pretrained(PREMISE.model, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    found = calibrate(model, tokenizer, PREMISE.training_problems(640)[::8])
    # An eighth of the problems: a share's standard error is below 0.06.
    for bound in PREMISE_BOUNDS:
        assert bound.low - 0.06 <= getattr(found, bound.name) <= bound.high + 0.06, bound
    assert set(RECIPES) == set(BOUNDS) >= set(TASKS)
