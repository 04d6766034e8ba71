"""A LoRA run's adapter without its whole model: how one is written from it, and that it is not taken for one."""

import pytest

pytest.importorskip("peft", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

import torch  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.data.identity import model_fingerprint  # noqa: E402
from restrain_openrlhf.errors import ConfigError  # noqa: E402
from tests.conftest import ROOT  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """A LoRA run's folder with its adapter alone, as after `rm RUN/model/*.safetensors` or a copy of the adapter."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    model.to(torch.bfloat16).save_pretrained(tmp_path / "run" / "model" / "adapter")
    return tmp_path / "run"


TOKENS = torch.randint(3, 20, (64, 16), generator=torch.Generator().manual_seed(0))


def of_a_real_size(adapter):
    """Ten steps of real gradients at a learning rate of 1e-5, from B = 0."""
    torch.manual_seed(2)
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=32, lora_alpha=32, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-5)
    for _ in range(10):
        (model(TOKENS).logits.log_softmax(-1)[:, :-1].gather(2, TOKENS[:, 1:, None]).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.to(torch.bfloat16).save_pretrained(adapter)


def test_the_lines_that_the_page_prints_keep_a_young_adapters_update(run, tmp_path):
    """By log-probabilities in fp64, against peft unmerged."""
    adapter = run / "model" / "adapter"
    of_a_real_size(adapter)
    page = (ROOT / "docs" / "journeys" / "train.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    for name, path in {"BASE": ADDITION.model, "RUN/model/adapter": adapter, "DIR": tmp_path / "whole"}.items():
        assert f'"{name}"' in code
        code = code.replace(f'"{name}"', repr(str(path)))
    exec(code, {})
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.float64)

    @torch.no_grad()
    def log_probs(model):
        return model.double()(TOKENS).logits.log_softmax(-1)

    before, found = log_probs(base), log_probs(whole)
    move = log_probs(PeftModel.from_pretrained(base, str(adapter))) - before
    share = ((found - before) * move).sum() / move.square().sum()
    assert share == pytest.approx(1.0, abs=1e-3)


def test_an_adapter_is_not_taken_for_a_model(run):
    adapter = run / "model" / "adapter"
    (adapter / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds a LoRA adapter.*with peft"):
        model_fingerprint(str(adapter))
