"""vLLM's models hold their ranks' cuts of every weight that a sync names: fused projections, tied heads, key heads."""

import json

import pytest

from tests.processes import free_port, needs_its_accelerator, printed

pytest.importorskip("openrlhf", reason="needs the training stack: make install")
pytestmark = [pytest.mark.host, pytest.mark.long]

SMALL = {
    "vocab_size": 250, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
KINDS = [(kind, tied) for kind in ("qwen2", "qwen3", "llama") for tied in (True, False)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models as presets have them, small and random: attention with biases, with norms, with neither."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = []
    for kind, tied in KINDS:
        head = {} if kind == "qwen2" else {"head_dim": 16}
        config = AutoConfig.for_model(kind, **SMALL, **head, tie_word_embeddings=tied)
        made.append(str(tmp_path_factory.mktemp(kind)))
        AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(made[-1])
    return made


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_rank_holds_its_cut_of_every_weight_that_was_sent(folders, ranks):
    """Four ranks share two key heads."""
    needs_its_accelerator()
    port = free_port()
    words = [("-m", "tests.hook.vllm_shards_case", rank, ranks, port, *folders) for rank in range(ranks)]
    for out in printed(*words):
        found = [json.loads(line) for line in out.splitlines() if line.startswith('{"wrong"')]
        expected = [{"wrong": [], "still": [], "fused": 4, "one_head": tied} for _, tied in KINDS]
        assert found == expected
