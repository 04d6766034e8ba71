"""Prompts as the host loads and renders them, and what bad prompt files get."""

import pytest

from restrain_openrlhf.errors import DataError
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts, prompt_set_hash, template_identity


def source(path, **fields):
    return PromptSource(dataset=str(path), input_key="problem", **fields)


class ChatTokenizer:
    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize
        assert add_generation_prompt
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


def test_prompts_keep_file_order_and_know_their_line(write_jsonl):
    path = write_jsonl("p.jsonl", [{"id": "a", "problem": "1+1="}, {"id": 7, "problem": "2+2="}])
    prompts = load_prompts(source(path, input_template="Q: {}\nA:"))
    assert [prompt.text for prompt in prompts] == ["Q: 1+1=\nA:", "Q: 2+2=\nA:"]
    assert [(prompt.id, prompt.problem, prompt.where) for prompt in prompts] == [
        ("a", "1+1=", "line 1"),
        (7, "2+2=", "line 2"),
    ]


def test_chat_templates_go_through_the_tokenizer(write_jsonl):
    path = write_jsonl("p.jsonl", [{"problem": "1+1="}, {"problem": [{"role": "system", "content": "s"}]}])
    prompts = load_prompts(source(path, apply_chat_template=True), ChatTokenizer())
    assert [prompt.text for prompt in prompts] == ["<user>1+1=<assistant>", "<system>s<assistant>"]


def test_the_problem_of_a_chat_of_one_message_is_its_text(write_jsonl):
    """So that gold is found by the text that `data prepare` writes of such a chat."""
    chat = [{"role": "user", "content": "1+1="}]
    (prompt,) = load_prompts(
        source(write_jsonl("p.jsonl", [{"problem": chat}]), apply_chat_template=True), ChatTokenizer()
    )
    assert (prompt.problem, prompt.text) == ("1+1=", "<user>1+1=<assistant>")


def test_a_chat_template_that_is_not_there_is_an_error(write_jsonl):
    path = write_jsonl("p.jsonl", [{"problem": "1+1="}])
    with pytest.raises(DataError, match="no chat template"):
        load_prompts(source(path, apply_chat_template=True), object())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no prompts"),
        ([{"problem": "x"}, {"question": "y"}], "line 2: has no 'problem'; its keys are ['question']"),
        ([{"problem": "x"}, {"problem": "  "}], "line 2: 'problem' is empty"),
        (
            [{"problem": [{"role": "user", "content": "x"}]}],
            "line 1: 'problem' is no text, and without a chat template",
        ),
        ([{"problem": {"text": "x"}}], "line 1: 'problem' is no text, and without a chat template"),
        ([{"problem": "x"}, {"problem": "y"}, {"problem": "x"}], "line 1 and line 3 hold the same prompt"),
    ],
)
def test_bad_prompt_sets_are_named(write_jsonl, rows, message):
    path = write_jsonl("p.jsonl", rows)
    with pytest.raises(DataError) as error:
        load_prompts(source(path))
    assert message in str(error.value)


PICTURES = [{"problem": "1+1="}, {"problem": "What is this?", "images": ["cat.png"]}]
TAGGED = [{"problem": "1+1="}, {"problem": "<image>What is this?"}]
TOLD = [{"problem": [{"role": "user", "content": "What is <image>?"}]}]


@pytest.mark.parametrize(
    ("rows", "chat", "message"),
    [
        (PICTURES, False, "line 2: 'images' has pictures"),
        (TAGGED, True, "line 2: 'problem' has the tag <image>"),
        (TOLD, True, "line 1: 'problem' has the tag <image>"),
    ],
)
def test_prompts_with_pictures_are_named(write_jsonl, rows, chat, message):
    path = write_jsonl("p.jsonl", rows)
    with pytest.raises(DataError) as error:
        load_prompts(source(path, apply_chat_template=chat), ChatTokenizer())
    assert message in str(error.value)


def test_what_the_host_takes_for_text_is_text(write_jsonl):
    assert len(load_prompts(source(write_jsonl("tags.jsonl", TAGGED)))) == 2, "there is no chat"
    assert len(load_prompts(source(write_jsonl("pictures.jsonl", PICTURES), image_key="none"))) == 2
    assert len(load_prompts(source(write_jsonl("empty.jsonl", [{"problem": "1+1=", "images": []}])))) == 1


def test_malformed_json_names_the_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"problem": "x"}\n{"problem": \n')
    with pytest.raises(DataError, match="line 2"):
        load_prompts(source(path))


@pytest.mark.host
def test_csv_and_parquet_are_read_like_the_host_does(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install restrain-openrlhf[data]")
    rows = datasets.Dataset.from_dict({"problem": ["x", "y"]})
    rows.to_csv(str(tmp_path / "p.csv"))
    rows.to_parquet(str(tmp_path / "p.parquet"))
    for name in ("p.csv", "p.parquet"):
        assert [prompt.text for prompt in load_prompts(source(tmp_path / name))] == ["x", "y"]
    with pytest.raises(DataError, match=r"absent\.csv"):
        load_prompts(source(tmp_path / "absent.csv"))


def identity(prompts):
    return prompt_set_hash(map(ReferenceRow.key_of, load_prompts(prompts)))


def test_identity_of_a_prompt_set_ignores_order_and_sees_the_template(write_jsonl):
    one = write_jsonl("1.jsonl", [{"problem": "x"}, {"problem": "y"}])
    two = write_jsonl("2.jsonl", [{"problem": "y"}, {"problem": "x"}])
    assert identity(source(one)) == identity(source(two))
    templated = source(one, input_template="Q {}")
    assert identity(templated) != identity(source(one))
    identities = {
        template_identity(source(one)),
        template_identity(templated),
        template_identity(source(one, apply_chat_template=True), ChatTokenizer()),
    }
    assert len(identities) == 3


@pytest.mark.host
def test_rendering_equals_the_hosts_own(write_jsonl):
    preprocess = pytest.importorskip(
        "openrlhf.datasets.prompts_dataset", reason="needs the training stack: make install"
    ).preprocess_data
    row = {"problem": "What is {x}?"}
    path = write_jsonl("p.jsonl", [row])
    for fields in ({}, {"input_template": "Q: {}\n"}):
        (prompt,) = load_prompts(source(path, **fields))
        assert prompt.text == preprocess(row, fields.get("input_template"), "problem")[0]
    (prompt,) = load_prompts(source(path, apply_chat_template=True), ChatTokenizer())
    assert prompt.text == preprocess(row, None, "problem", None, ChatTokenizer().apply_chat_template)[0]
