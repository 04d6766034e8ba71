"""`restrain merge`: the whole model of a LoRA run, or a refusal that says what is missing."""

import pytest

pytest.importorskip("peft", reason="needs the training stack: make install")
pytestmark = pytest.mark.host

import torch  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION  # noqa: E402
from restrain_openrlhf.data.identity import model_fingerprint  # noqa: E402
from restrain_openrlhf.errors import ConfigError  # noqa: E402
from tests.commands import refused, restrain  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """A LoRA run's folder with its adapter alone, as after `rm RUN/model/*.safetensors` or a copy of the adapter."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    model.to(torch.bfloat16).save_pretrained(tmp_path / "run" / "model" / "adapter")
    return tmp_path / "run"


@pytest.mark.parametrize("given", [".", "model", "model/adapter"])
def test_the_whole_model_is_what_base_and_adapter_compute(run, tmp_path, given):
    done = restrain("merge", run / given, "--out", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.bfloat16)
    tokens = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "whole")("12+34=")["input_ids"]])
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    assert whole.dtype == torch.bfloat16
    assert whole.generation_config.eos_token_id == base.generation_config.eos_token_id
    before = base(tokens).logits
    adapter = PeftModel.from_pretrained(base, str(run / "model" / "adapter"), autocast_adapter_dtype=False)
    apart = (whole(tokens).logits - adapter(tokens).logits).abs().mean()
    assert apart < 0.05 * (whole(tokens).logits - before).abs().mean()
    assert model_fingerprint(str(tmp_path / "whole")) != model_fingerprint(str(ADDITION.model))
    written, given = (load_file(path / "model.safetensors") for path in (tmp_path / "whole", ADDITION.model))
    assert written.keys() == given.keys(), "a head that is tied to the embedding is written once"


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


@pytest.mark.parametrize("words", [(), ("--dtype", "float32")], ids=["bf16", "fp32"])
def test_a_young_adapters_update_is_in_the_merged_model(run, tmp_path, words):
    """By log-probabilities in fp64, against peft unmerged; its merge in bf16 has less than half."""
    of_a_real_size(run / "model" / "adapter")
    assert restrain("merge", run, "--out", tmp_path / "whole", *words).returncode == 0
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    assert whole.dtype == (torch.float32 if words else torch.bfloat16)
    base = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype=torch.float64)

    @torch.no_grad()
    def log_probs(model):
        return model.double()(TOKENS).logits.log_softmax(-1)

    before, found = log_probs(base), log_probs(whole)
    move = log_probs(PeftModel.from_pretrained(base, str(run / "model" / "adapter"))) - before
    share = ((found - before) * move).sum() / move.square().sum()
    assert share == pytest.approx(1.0, abs=1e-3 if words else 0.1)


def test_it_is_written_into_the_run_unless_told_otherwise(run):
    assert restrain("merge", run).returncode == 0
    assert sorted(path.name for path in run.iterdir()) == ["merged", "model"], "nothing half-written is left"
    assert "exists. Name another folder with --out" in refused("merge", run)


def test_a_run_without_adapter_is_refused(tmp_path):
    assert "holds no LoRA adapter" in refused("merge", tmp_path)
    assert "holds no LoRA adapter" in refused("merge", tmp_path / "nowhere")


def test_a_base_that_is_gone_or_another_is_refused(run, tmp_path):
    assert "--base MODEL names it at another place" in refused("merge", run, "--base", tmp_path / "gone")
    config = AutoModelForCausalLM.from_pretrained(ADDITION.model).config
    config.hidden_size, config.dtype = 64, "bfloat16"
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "other")
    assert "does not fit" in refused("merge", run, "--base", tmp_path / "other")
    assert not (run / "merged").exists()


def test_an_adapter_is_not_taken_for_a_model(run):
    adapter = run / "model" / "adapter"
    (adapter / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds a LoRA adapter.*restrain merge"):
        model_fingerprint(str(adapter))
