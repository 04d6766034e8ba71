"""The folder for the hub: loadable, complete, and with nothing of this machine in it."""

import getpass
import json
import shutil
import socket

import pytest
import yaml

pytest.importorskip("transformers", reason="needs the training stack: make install")

from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from tests.command_line import refused, restrain
from tests.commands.published_run import DIGEST, base_model, evaluation, prepared_prompts, training_run
from tests.data.test_identity import sha256sum


@pytest.fixture
def run(tmp_path):
    """A run on prepared prompts, from a base model with a card and a licence, evaluated as the base model was."""
    base = base_model(tmp_path / "models" / "Base-8B", card="license: llama3.1\nlicense_link: https://example.org/l\n")
    made = training_run(tmp_path / "my-run", base, prepared_prompts(tmp_path / "dapo14k.jsonl"))
    evaluation(made / "evaluation", made / "model", pass_at_1=0.4, majority=0.5)
    evaluation(tmp_path / "of-base", base, pass_at_1=0.2, majority=0.3)
    return made


def published(run):
    done = restrain("publish", run, "--name", "me/mine")
    assert done.returncode == 0, done.stderr
    text = (run / "hub" / "README.md").read_text()
    assert f"hf upload me/mine {run / 'hub'}" in done.stdout
    return yaml.safe_load(text.split("---")[1]), text


def test_it_is_loaded_as_any_model_of_the_hub(run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    published(run)
    model = AutoModelForCausalLM.from_pretrained(run / "hub", dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(run / "hub")
    before = AutoModelForCausalLM.from_pretrained(ADDITION.model, dtype="auto")
    words = tokenizer("12+34=", return_tensors="pt")["input_ids"]
    assert (model(words).logits == before(words).logits).all()


def test_the_front_matter_is_what_the_hub_reads(run):
    front, _ = published(run)
    assert "base_model" not in front
    assert front["datasets"] == ["open-r1/DAPO-Math-17k-Processed"]
    assert (front["license"], front["license_link"]) == ("llama3.1", "https://example.org/l")
    assert (front["pipeline_tag"], front["library_name"]) == ("text-generation", "transformers")
    assert {"restrain", "restrain-openrlhf"} <= set(front["tags"])


def test_the_card_says_how_it_was_made_and_how_good_it_is(run):
    front, text = published(run)
    assert "| `kappa` | 3.0 |" in text
    assert DIGEST in text
    assert "| AIME24 | 30 | 40.0 [35.0, 45.0] | 50.0 (k 16) | T 0.6" in text
    assert "25.0 at step 0, 50.0 at step 2" in text
    assert "# me/mine" in text
    (index,) = front["model-index"]
    (result,) = index["results"]
    found = {each["type"]: each["value"] for each in result["metrics"]}
    assert (index["name"], result["dataset"]["name"]) == ("me/mine", "AIME24")
    assert found == {"pass@1": 40.0, "maj@16": 50.0}


def test_the_cards_example_generates_a_response(run, capsys, monkeypatch):
    """As printed, but for the folder in the place of the hub's name, and the wheel that places a model on devices."""
    _, text = published(run)
    code = text.partition("```python\n")[2].partition("```")[0]
    assert code.count('"me/mine"') == 2
    exec(code.replace('"me/mine"', repr(str(run / "hub"))).replace(', device_map="auto"', "").replace("1024", "8"), {})
    assert capsys.readouterr().out.strip()


def test_the_card_says_what_kind_of_answer_it_votes_on_and_nothing_private_of_it(run):
    front, text = published(run)
    assert "math" in front["tags"]
    assert "| kind of answer, with its version | math 1-of-then |" in text, "that of the run, not today's"
    resolved = json.loads((run / "run.json").read_text())
    own = {"name": "judge", "callable": "judge.internal:equal"}
    del resolved["contents"]
    (run / "run.json").write_text(json.dumps({**resolved, "answers": own}))
    shutil.rmtree(run / "hub")
    front, text = published(run)
    assert ("judge" in front["tags"], "math" in front["tags"]) == (True, False)
    assert "| kind of answer, with its version | judge (not recorded) |" in text
    assert ".internal" not in text


def test_nothing_of_this_machine_is_published(run, tmp_path):
    published(run)
    private = [tmp_path, "/opt/venv", ".internal", "a-key-of-wandb", "team-of-someone", "secret-project"]
    private += [name for name in (socket.gethostname(), getpass.getuser()) if name not in ("localhost", "root")]
    for path in (run / "hub").rglob("*"):
        if path.suffix in (".md", ".json") and path.name != "tokenizer.json":
            assert [word for word in map(str, private) if word in path.read_text()] == [], path


def test_a_path_that_a_file_of_the_model_brings_along_stops_it(run):
    shutil.rmtree(run / "evaluation")  # it is of the model with another template
    (run / "model" / "chat_template.jinja").write_text(f"{{# from {run}/template #}}")
    assert "chat_template.jinja: holds the path" in refused("publish", run)
    assert not (run / "hub").exists()


def test_a_secret_of_the_environment_stops_it(run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    (run / "model" / "notes.txt").write_text("hf_abcdefgh")
    message = refused("publish", run)
    assert "the value of HF_TOKEN" in message
    assert "hf_abcdefgh" not in message


def test_what_is_not_known_is_said(tmp_path):
    base = base_model(tmp_path / "base", card=None)
    run = training_run(tmp_path / "run", base, tmp_path / "gone.jsonl")
    front, text = published(run)
    assert "base_model" not in front
    assert "datasets" not in front
    assert front["license"] == "unknown"
    assert "| prompts | gone.jsonl |" in text
    assert "digest" not in text
    assert "No evaluation of this model was published with it." in text


def test_prompts_that_were_made_anew_are_not_described_as_those_of_the_run(run):
    record = json.loads((run / "run.json").read_text())
    prompts = record["openrlhf"]["data.prompt_dataset"]
    for digest, is_described in ((f"sha256:{sha256sum(prompts)}", True), ("sha256:of-then", False)):
        record["contents"]["data.prompt_dataset"] = digest
        (run / "run.json").write_text(json.dumps(record))
        front, text = published(run)
        assert (DIGEST in text, "datasets" in front) == (is_described, is_described)
        shutil.rmtree(run / "hub")


def test_a_lora_runs_adapter_goes_beside_the_whole_model(run):
    adapter = run / "model" / "adapter"
    adapter.mkdir()
    base = json.loads((run / "run.json").read_text())["openrlhf"]["actor.model_name_or_path"]
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, "r": 4}))
    (adapter / "adapter_model.safetensors").write_bytes(b"1")
    (adapter / "README.md").write_text(base)
    _, text = published(run)
    written = json.loads((run / "hub" / "adapter" / "adapter_config.json").read_text())
    assert written == {"base_model_name_or_path": "Base-8B", "r": 4}
    assert not (run / "hub" / "adapter" / "README.md").exists()
    assert "the adapter alone is in `adapter/`" in text


def test_bad_input_is_refused(run, tmp_path):
    assert "holds no run that has ended" in refused("publish", tmp_path)
    base = tmp_path / "of-base"
    shutil.rmtree(run / "evaluation")
    shutil.move(base, run / "evaluation")
    assert "aime24 was evaluated with " in refused("publish", run)
    shutil.rmtree(run / "evaluation")
    (run / "hub").mkdir()
    assert "exists. Remove it" in refused("publish", run)
    (run / "hub").rmdir()
    (run / "model" / "model.safetensors").unlink()
    assert "holds no weights" in refused("publish", run)
    (run / "completed.json").unlink()
    assert "holds no run that has ended" in refused("publish", run)
