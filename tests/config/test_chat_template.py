"""Yes or no to a model's chat template: what a configuration says, what a model's files tell, who asks."""

import json

import pytest

from restrain_openrlhf.config.checks.model_files import template_of
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import load_run_config
from tests.command_line import restrain
from tests.config.presets import CONFIGS, presets

WORD, MODEL = "data.apply_chat_template", "actor.model_name_or_path"
CPU = CONFIGS / "cpu" / "test_time.yaml"


def test_every_preset_says_it():
    """No preset has both: an input template of its own, such as Llama's with a fixed date, is a no."""
    for name in presets():
        flags = load_run_config(find_config(name)).openrlhf
        is_chat = flags[MODEL].endswith("-Instruct") and "data.input_template" not in flags
        assert flags.get(WORD) is is_chat, name


OTHER = {f"openrlhf.{MODEL}": "me/Other-Instruct"}


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        ("extends: {cpu}", {}, False),
        ("extends: {cpu}", OTHER, None),
        ("extends: {cpu}", {**OTHER, f"openrlhf.{WORD}": True}, True),
        ("extends: {cpu}\nopenrlhf: {{actor.model_name_or_path: me/Other-Instruct}}", {}, None),
        ("extends: {cpu}\nopenrlhf: {{data.apply_chat_template: true}}", OTHER, True),
        ("extends: {cpu}\nopenrlhf: {{actor.model_name_or_path: a/b, data.apply_chat_template: true}}", {}, True),
        ("extends: {cpu}\nopenrlhf: {{actor.model_name_or_path: a/b, data.apply_chat_template: true}}", OTHER, None),
        # The same model in another place.
        ("extends: {cpu}", {f"openrlhf.{MODEL}": "/mnt/models/Addition/"}, False),
        ("extends: dapo14k/qwen3-4b-base/restrain", {f"openrlhf.{MODEL}": "/mnt/Qwen3-4B-Base"}, False),
        ("extends: dapo14k/qwen3-4b-base/restrain", OTHER, None),
    ],
)
def test_a_word_counts_for_the_model_that_its_document_names(tmp_path, text, overrides, said):
    (tmp_path / "mine.yaml").write_text(text.format(cpu=CPU))
    (tmp_path / "above.yaml").write_text("extends: mine.yaml")
    for file in ("mine.yaml", "above.yaml"):
        assert flags_of(load_run_config(tmp_path / file, overrides))[WORD] is said


TEMPLATE = "{{ messages }}"
# Files of a tokenizer, and whether transformers finds a template in them.
FILES = [
    ({"tokenizer_config.json": {}}, False),
    ({"tokenizer_config.json": {"chat_template": None}}, False),
    ({"tokenizer_config.json": {"chat_template": TEMPLATE}}, True),
    ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": TEMPLATE}]}}, True),
    ({"tokenizer_config.json": {}, "chat_template.jinja": TEMPLATE}, True),
]


def write(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(("files", "has_one"), FILES)
def test_a_folder_and_the_hubs_cache_tell_what_transformers_finds(tmp_path, monkeypatch, files, has_one):
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    from huggingface_hub import constants
    from tokenizers import Tokenizer, models

    vocabulary = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")).to_str()
    named = {**files["tokenizer_config.json"], "tokenizer_class": "PreTrainedTokenizerFast"}
    folder = write(tmp_path / "model", {**files, "tokenizer_config.json": named, "tokenizer.json": vocabulary})
    assert (transformers.AutoTokenizer.from_pretrained(folder).chat_template is not None) is has_one
    assert bool(template_of(str(folder))) is has_one
    cache = tmp_path / "cache" / "models--me--chat"
    write(cache / "snapshots" / "abc", files)
    write(cache / "refs", {"main": "abc"})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert bool(template_of("me/chat")) is has_one
    assert not template_of("me/absent"), "what is not here is not fetched"


@pytest.fixture
def chat(tmp_path):
    """A configuration without a word, which extends the demo's, for a model with a chat template."""
    model = write(tmp_path / "chat", {"chat_template.jinja": TEMPLATE, "config.json": "{}"})
    held = "eval.dataset: h.jsonl, eval.steps: 1, data.label_key: answer"
    own = "run_dir: runs/x\nreference: null\nmethod: {name: restrain, prompt_weight: online}\n"
    (tmp_path / "mine.yaml").write_text(f"extends: {CPU}\n{own}openrlhf: {{{MODEL}: {model}, {held}}}\n")
    return tmp_path / "mine.yaml"


@pytest.mark.parametrize(
    "command",
    [
        ("show", "CONFIG"),
        ("train", "CONFIG"),
        ("study", "CONFIG", "--out", "OUT"),
        ("k8s", "render", "CONFIG", "--overlay", "8xa100-80g", "--out", "OUT"),
    ],
    ids=lambda command: " ".join(map(str, command)),
)
def test_what_starts_or_shows_a_run_asks_for_a_word(tmp_path, chat, command):
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    named = {"CONFIG": chat, "OUT": tmp_path / "out"}
    done = restrain(*(named.get(word, word) for word in command), cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, said
    assert f"{WORD} is not set, and the model's tokenizer has a chat template. Set it to true" in said
    assert "or to false" in said
    assert not any((tmp_path / "out").glob("*"))
    word = ("--set", f"openrlhf.{WORD}=false")
    assert WORD not in restrain("show", chat, *word).stderr
