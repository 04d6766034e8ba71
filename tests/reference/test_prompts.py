"""Prompts as the host loads and renders them, and what bad prompt files get."""

from dataclasses import replace

import pytest

from restrain_openrlhf.answers import parse_kind
from restrain_openrlhf.data.benchmarks import load_benchmark
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.data.prepare import prepare
from restrain_openrlhf.data.sources import OWN
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.job import TEMPLATES, benchmark_prompts
from restrain_openrlhf.reference import ReferenceRow
from restrain_openrlhf.reference.offline_engine import prompt_tokens
from restrain_openrlhf.reference.prompts import PromptSource, load_prompts, prompt_set_hash, template_identity
from test_time.problems import Source, instructed, load_problems
from tests.reference.toy import word_tokenizer


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
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1="}]
    path = write_jsonl("p.jsonl", [{"problem": "1+1="}, {"problem": chat}])
    prompts = load_prompts(source(path, apply_chat_template=True), ChatTokenizer())
    assert [prompt.text for prompt in prompts] == ["<user>1+1=<assistant>", "<system>s<user>1+1=<assistant>"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no prompts"),
        (
            [{"problem": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}],
            "line 1: its prompt is a chat of 2 messages, which only the model's chat template can write",
        ),
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
        (PICTURES, False, "line 2: has pictures (the column 'images'"),
        (TAGGED, True, "line 2: has pictures"),
        (TOLD, True, "line 1: has pictures"),
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


def test_rendering_equals_the_hosts_own(write_jsonl):
    row = {"problem": "What is {x}?"}
    path = write_jsonl("p.jsonl", [row])
    for fields in ({}, {"input_template": "Q: {}\n"}):
        (prompt,) = load_prompts(source(path, **fields))
        assert prompt.text == hosts_own(row, fields.get("input_template"), "problem")
    (prompt,) = load_prompts(source(path, apply_chat_template=True), ChatTokenizer())
    assert prompt.text == hosts_own(row, None, "problem", None, ChatTokenizer().apply_chat_template)


def hosts_own(*given):
    """OpenRLHF's reading of a row, without the hook."""
    host = pytest.importorskip("openrlhf.datasets.prompts_dataset", reason="needs the training stack: make install")
    return getattr(host.preprocess_data, "__wrapped__", host.preprocess_data)(*given)[0]


# As SmolLM2's, which adds a system message to a chat that has none.
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<s> system help </s> {% endif %}"
    "<s> {{ m['role'] }} {{ m['content'] }} </s> {% endfor %}{% if add_generation_prompt %}<s> assistant{% endif %}"
)
CHATS = [
    "one plus two",
    [{"role": "user", "content": "one plus two"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one plus two"}],
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "what is it"},
        {"role": "user", "content": "one plus two"},
    ],
]


WORDS = "</s> system user assistant help be brief hello what is it one plus two".split()


def test_the_template_gets_a_chats_messages_as_they_are_in_every_command(write_jsonl, tmp_path):
    """The token ids of OpenRLHF's own reading of the row, against those of all that draws rollouts of it."""
    tokenizer = word_tokenizer(*WORDS, chat_template=TEMPLATE)
    rows = [{"id": str(place), "prompt": chat, "answer": "3"} for place, chat in enumerate(CHATS[1:])]
    path = write_jsonl("p.jsonl", rows)
    host = [hosts_own(row, None, "prompt", None, tokenizer.apply_chat_template) for row in rows]
    wanted = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in host]
    assert wanted[1][:8] == [1, 3, 7, 8, 2, 1, 4, 13], "<s> system be brief </s> <s> user one"
    write_rows(tmp_path / "adapt.jsonl", load_problems(Source(str(path))))
    prepare(OWN, str(path), tmp_path / "train.jsonl")
    chat = PromptSource(str(path), "problem", apply_chat_template=True)
    for each in (chat, *(replace(chat, dataset=str(tmp_path / name)) for name in ("adapt.jsonl", "train.jsonl"))):
        assert [prompt_tokens(prompt, tokenizer) for prompt in load_prompts(each, tokenizer)] == wanted
    evaluated = benchmark_prompts(load_benchmark(f"mine={path}"), TEMPLATES["chat"], tokenizer)
    assert [prompt_tokens(prompt, tokenizer) for prompt in evaluated] == wanted
    with pytest.raises(ConfigError, match=r"--template cot: .* chat of 2 messages.*Choose chat or chat-boxed"):
        benchmark_prompts(load_benchmark(f"mine={path}"), TEMPLATES["cot"], tokenizer)


def test_an_instruction_and_options_go_to_the_end_of_a_chats_last_message(write_jsonl):
    path = write_jsonl("p.jsonl", [{"prompt": CHATS[2], "options": ["2", "3"], "answer": "B"}])
    choice = parse_kind({"name": "choice"})
    (asked,) = instructed(load_problems(Source(str(path)), choice), choice)
    first, last = asked.problem
    assert first == CHATS[2][0]
    assert last["content"].startswith("one plus two\n(A) 2\n(B) 3\n")
    assert last["content"].endswith(choice.instruction)


def test_a_chat_that_the_template_refuses_is_named(write_jsonl):
    refuses = "{{ raise_exception('System role not supported') }}"
    path = write_jsonl("p.jsonl", [{"problem": "one"}])
    with pytest.raises(DataError, match=r"line 1: the model's chat template refuses .* \(System role not supported\)"):
        load_prompts(source(path, apply_chat_template=True), word_tokenizer(chat_template=refuses))


@pytest.mark.parametrize("template", ["{} and {}", "{x}", "none", "{:.3}", "{", "{0.real}"])
def test_an_input_template_without_one_place_is_refused_before_anything_is_read(template):
    with pytest.raises(ConfigError, match=r"data\.input_template is .*: it must have \{\} once"):
        load_prompts(source("absent.jsonl", input_template=template))
