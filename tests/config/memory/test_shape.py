"""Shapes: parameters as the hub counts them, and what is not covered says how to give it."""

import json
import struct
from math import prod

import pytest

from restrain_openrlhf.config.memory.estimate import Held
from restrain_openrlhf.config.memory.shape import shape_of
from restrain_openrlhf.errors import ConfigError
from tests.config.memory.cases import PARAMETERS, TINY, flags
from tests.conftest import ROOT

# As the hub shows them for the weights of these models.
ON_THE_HUB = {
    "Qwen/Qwen3-0.6B-Base": 596_049_920,
    "Qwen/Qwen3-1.7B-Base": 1_720_574_976,
    "Qwen/Qwen3-4B-Base": 4_022_468_096,
    "Qwen/Qwen2.5-Math-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-Math-7B": 7_615_616_512,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "OctoThinker/OctoThinker-8B-Hybrid-Base": 8_030_261_248,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
}


@pytest.mark.parametrize("model", ON_THE_HUB)
def test_parameters_are_those_of_the_weights(model):
    assert shape_of(model).parameters == ON_THE_HUB[model]


def test_parameters_worked_by_hand():
    assert TINY.parameters == PARAMETERS


def test_a_local_models_parameters_are_those_of_its_file():
    folder = ROOT / "restrain_openrlhf" / "data" / "demo_tasks" / "models" / "addition"
    with (folder / "model.safetensors").open("rb") as file:
        head = json.loads(file.read(*struct.unpack("<Q", file.read(8))))
    counts = [prod(entry["shape"]) for name, entry in head.items() if name != "__metadata__"]
    assert shape_of(str(folder)).parameters == sum(counts)


@pytest.fixture
def built():
    """The models as Transformers builds them from a shape, on no device: nothing is allocated."""
    torch = pytest.importorskip("torch", reason="needs the training stack: make install")
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")

    def build(shape):
        config = transformers.AutoConfig.for_model(**shape.model_dump(exclude={"attention_bias"}))
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(config)

    return build


@pytest.mark.parametrize("model", ON_THE_HUB)
def test_parameters_and_the_largest_tensor_are_those_of_the_model_that_is_built(built, model):
    shape = shape_of(model)
    sizes = [parameter.numel() for parameter in built(shape).parameters()]
    assert (sum(sizes), max(sizes)) == (shape.parameters, shape.embedding)


@pytest.mark.parametrize("targets", ["all-linear", "q_proj v_proj"])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-4B-Base", "meta-llama/Llama-3.1-8B-Instruct"])
def test_what_lora_trains_is_what_peft_adds(built, model, targets):
    peft = pytest.importorskip("peft", reason="needs the training stack: make install")
    named = targets if targets == "all-linear" else targets.split()
    adapted = peft.get_peft_model(
        built(shape_of(model)), peft.LoraConfig(r=32, target_modules=named, task_type="CAUSAL_LM")
    )
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    asked = flags(ds__lora__rank=32, ds__lora__target_modules=targets.split())
    assert Held.by(asked, shape_of(model)).trained == trained


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "qwen3_moe", "num_experts": 128}, "has experts"),
        ({"model_type": "mamba"}, "is of the type 'mamba', which is not covered"),
        ({"model_type": "llama", "hidden_size": 4}, "intermediate_size: field required"),
        ([], "cannot be read as a model's config.json"),
    ],
)
def test_what_is_not_covered_is_refused_with_the_way_out(tmp_path, config, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"Name a folder that holds the model's config\.json") as error:
        shape_of(str(tmp_path))
    assert message in str(error.value)


def test_an_unknown_model_is_refused_and_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="no-one/no-model: its shape is not known here"):
        shape_of("no-one/no-model")
    assert not list(tmp_path.iterdir())


def test_a_folder_s_config_is_read(tmp_path):
    (tmp_path / "config.json").write_text(TINY.model_dump_json(exclude={"head_dim"}))
    assert shape_of(str(tmp_path)) == TINY
