"""A model whose files do not fit together is refused by every command that starts a run with it, in one sentence."""

import json
import shutil

import pytest

from restrain_openrlhf.config.checks.model_files import why_unfit
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from tests.command_line import restrain
from tests.config.presets import CONFIGS

# In the demo's model <pad> is 0, <eos> 1 and <bos> 2. Its embedding has a row for each of the 102 tokens.
ABSENT = "absent"
ENDS_A_TURN = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
NEVER_ENDS = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
# What differs from those files (tokenizer_config, generation_config, config), a chat template, and what is said.
CASES = {
    "the demo's own": ({}, {}, {}, None, None),
    "no padding token, as Llama 3.1": ({"pad_token": None}, {}, {}, None, None),
    "several ends, as Llama 3.1 Instruct": ({}, {"eos_token_id": [2, 1, 3]}, {}, ENDS_A_TURN, None),
    "another padding token, a larger head, as Qwen2.5": ({"pad_token": "<bos>"}, {}, {"vocab_size": 128}, None, None),
    "an end as an object": ({"eos_token": {"content": "<eos>"}}, {}, {}, None, None),
    "a template by the token's name": ({}, {}, {}, "{{ messages[0].content }}{{ eos_token }}", None),
    "the unconverted SmolLM2: it ends with the mark that begins a turn": (
        {"eos_token": "<bos>", "pad_token": None},
        {},
        {},
        ENDS_A_TURN,
        "its tokenizer ends a response with '<bos>' (number 2), but its generation settings with '<eos>'. Set",
    ),
    "generation settings with another end": (
        {},
        {"eos_token_id": 3},
        {},
        None,
        "but its generation settings with '<unk>'",
    ),
    "generation settings without an end": (
        {},
        {"eos_token_id": None},
        {"eos_token_id": None},
        None,
        "with no token. Set",
    ),
    "no end, so no padding": (
        {"eos_token": None, "pad_token": None},
        {},
        {},
        None,
        "ends a response with no token, so",
    ),
    "a template without an end": ({}, {}, {}, NEVER_ENDS, "Set data.apply_chat_template to false for a base model"),
    "a token without a row": ({}, {}, {"vocab_size": 101}, None, "as number 101, but the model has only 101 rows"),
}


@pytest.fixture
def folder(tmp_path):
    """Makes a copy of the demo's model in which these entries are other."""

    def make(tokenizer, generation, config, template):
        made = tmp_path / "model"
        shutil.copytree(ADDITION.model, made)
        for name, changes in (
            ("tokenizer_config", tokenizer),
            ("generation_config", generation),
            ("config", config),
        ):
            file = made / f"{name}.json"
            entries = {**json.loads(file.read_text()), **changes}
            file.write_text(json.dumps({key: value for key, value in entries.items() if value != ABSENT}))
        if template:
            (made / "chat_template.jinja").write_text(template)
        return made

    return make


@pytest.mark.parametrize(("tokenizer", "generation", "config", "template", "said"), CASES.values(), ids=CASES)
def test_files_fit_or_the_setting_that_mends_them_is_named(folder, tokenizer, generation, config, template, said):
    found = why_unfit(str(folder(tokenizer, generation, config, template)), in_chat_template=template is not None)
    assert (found is None) if said is None else said in found, found


@pytest.mark.parametrize(
    ("tokenizer_class", "end", "said"),
    [
        ("GPT2Tokenizer", 0, None),
        ("GPT2Tokenizer", 1, "ends a response with '<|endoftext|>' (number 0), but its generation settings with '<|im"),
        ("LlamaTokenizer", 0, "ends a response with '</s>' (number None), but its generation settings with '<|endof"),
        ("TokenizersBackend", 0, "ends a response with no token"),
    ],
)
def test_an_end_that_only_the_tokenizers_class_knows_is_compared_too(tmp_path, tokenizer_class, end, said):
    pytest.importorskip("transformers", reason="needs the training stack: make install")
    from tokenizers import Tokenizer, models

    vocabulary = {"<|endoftext|>": 0, "<|im_end|>": 1, "a": 2}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    config = {"model_type": "gpt2", "vocab_size": 3, "eos_token_id": end}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = why_unfit(str(tmp_path), in_chat_template=False)
    assert (found is None) if said is None else said in found, found


def test_a_template_counts_only_where_it_is_used_and_a_mark_that_nothing_writes_needs_no_row(folder):
    made = folder({}, {}, {}, NEVER_ENDS)
    assert why_unfit(str(made), in_chat_template=False) is None
    file = made / "tokenizer.json"
    written = json.loads(file.read_text())
    written["added_tokens"].append({"id": 200, "content": "<image>", "special": True})
    file.write_text(json.dumps(written))
    assert why_unfit(str(made), in_chat_template=False) is None
    written["added_tokens"][-1]["special"] = False
    file.write_text(json.dumps(written))
    assert "'<image>' as number 200" in why_unfit(str(made), in_chat_template=False)


@pytest.mark.parametrize(
    "command",
    [
        ("restrain", "show", "CONFIG"),
        ("restrain", "train", "CONFIG"),
        ("restrain", "reference", "CONFIG"),
        ("restrain", "gpu-check", "CONFIG", "--allow-cpu", "--out", "OUT"),
        ("test-time", "adapt", "--config", "CONFIG", "--model", "MODEL", "--prompts", "PROMPTS", "--out", "OUT"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_that_would_start_a_run_says_it(tmp_path, folder, command):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    from tests.test_time.conftest import run_test_time

    model, prompts = folder({"eos_token": "<bos>"}, {}, {}, None), tmp_path / "prompts.jsonl"
    prompts.write_text('{"problem": "123+456="}\n')
    named = f"actor.model_name_or_path: {model}, data.prompt_dataset: {prompts}, data.apply_chat_template: false"
    config = tmp_path / "mine.yaml"
    run = f"run_dir: {tmp_path}/run\nreference: {tmp_path}/ref.jsonl\n"
    config.write_text(f"extends: {CONFIGS}/cpu/test_time.yaml\n{run}openrlhf: {{{named}}}\n")
    given = {"CONFIG": config, "MODEL": model, "PROMPTS": prompts, "OUT": tmp_path / "out"}
    words = [given.get(word, word) for word in command[1:]]
    done = restrain(*words) if command[0] == "restrain" else run_test_time(*words)
    assert done.returncode == 2, done.stderr
    assert "Set eos_token in tokenizer_config.json" in " ".join(done.stderr.split())
    assert not (tmp_path / "ref.jsonl").exists()
