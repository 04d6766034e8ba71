"""Somebody else's reference at each door: the service, its client's trial, the agent alone, and the commands."""

import asyncio
import json

import httpx
import pytest
import yaml

from restrain_openrlhf.config.yaml_file import HookConfig
from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.demo.tasks import ADDITION
from restrain_openrlhf.errors import ReferencePassError, ScoreServiceError
from restrain_openrlhf.method import parse_settings
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.checks import NeededReference
from tests.commands import refused
from tests.hook.conftest import agent_alone as agent_alone
from tests.reference import by_hand
from tests.reward.conftest import END
from tests.reward.conftest import services as services

PROMPT = "1+1="
NINE_TO_SEVEN = ["12"] * 9 + ["13"] * 7
METHODS = ["restrain", "srt_offline"]
MODEL = {"model_fingerprint": "commit:dead"}
GREEDY = {"n": 2, "temperature": 0.0, "max_new_tokens": 8}
OTHERS = [
    (MODEL, "made for another model: 'commit:dead'"),
    (GREEDY, "has 2 rollouts per prompt, and the run needs 16"),
    ({"temperature": 0.0}, "sampled with temperature 0.0, and this run draws with 1.0"),
    ({"top_p": 0.9}, "sampled with top_p 0.9, and this run draws with 1.0"),
    ({"max_new_tokens": 8}, "sampled with max_new_tokens 8, and this run draws with 40"),
    ({"extractor_version": "0"}, "holds answers of extractor version '0'"),
]


def made_by_hand(tmp_path, **made):
    answers = NINE_TO_SEVEN[: made.get("n", 16)]
    return by_hand.write(tmp_path / "ref.jsonl", [by_hand.line(PROMPT, answers)], **made)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda a, b: [a, by_hand.line("q", ["1", "1"])], r"line 2: 2 answers and n 2, and the provenance says 16"),
        (lambda a, b: [a, by_hand.line("q", ["1", "1"], n=16)], r"line 2: 2 answers and n 16"),
        (lambda a, b: [a, "\n", b, a], r"line 4: the prompt of line 1 again"),
    ],
)
def test_rows_of_another_pass_and_rows_that_come_twice_are_refused_by_line(tmp_path, rows, message):
    a, b = by_hand.line("p", NINE_TO_SEVEN), by_hand.line("q", NINE_TO_SEVEN)
    lines = rows(a, b)
    path = by_hand.write(tmp_path / "ref.jsonl", lines, prompt_count=sum(bool(each.strip()) for each in lines))
    with pytest.raises(ReferencePassError, match=message):
        load_reference(path)


def test_a_reference_written_by_hand_is_read(tmp_path):
    (row,) = load_reference(made_by_hand(tmp_path)).rows
    assert (row.majority, row.majority_count) == ("12", 9)


def test_another_extractors_answers_are_refused_by_every_command_that_reads_them(tmp_path, write_jsonl):
    path = made_by_hand(tmp_path, extractor_version="0")
    rollouts = write_jsonl("rollouts.jsonl", [{"id": 1, "problem": PROMPT, "responses": [r"\boxed{12}"] * 16}])
    for words in (
        ("premise", "--reference", path),
        ("score", rollouts, "--out", tmp_path / "o.jsonl", "--reference", path),
        ("subset-reference", path, "--n", "2", "--out", tmp_path / "o.jsonl"),
        ("serve", "--config", served(tmp_path, path)),
    ):
        said = refused(*words)
        assert "holds answers of extractor version '0'" in said, words
        assert "Make it again with `restrain reference`" in said


def served(tmp_path, reference, method="restrain", service=None, **keys):
    document = {"method": {"name": method}, "reference": str(reference), "service": service or {}, **keys}
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("made", "message"), OTHERS)
def test_a_service_that_gathers_groups_does_not_start_with_it(tmp_path, method, made, message):
    service = {"group_size": 16, "model": str(ADDITION.model), "max_new_tokens": 40}
    fingerprint = model_fingerprint(str(ADDITION.model))
    path = made_by_hand(tmp_path, **{"model_fingerprint": fingerprint, **made})
    assert message in refused("serve", "--config", served(tmp_path, path, method, service))


@pytest.fixture
def scoring(services, tmp_path):
    """A service for whole groups, with this reference."""

    def scoring(method="restrain", **made):
        path = made_by_hand(tmp_path, **made)
        return services.start(method={"name": method}, gathers=False, reference=str(path))

    return scoring


NEEDED = {"model_fingerprint": "folder:1", "n": 16, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 40}


@pytest.mark.host
@pytest.mark.parametrize(("made", "message"), OTHERS[:-1])
def test_a_run_whose_service_has_it_is_refused_at_the_trial(scoring, made, message):
    pytest.importorskip("aiohttp", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.group_scoring import try_service

    config, url = HookConfig(method=parse_settings({"name": "restrain"})), scoring(**made).url
    with pytest.raises(ScoreServiceError) as error:
        try_service(config, url, PROMPT, 16, NeededReference(**NEEDED))
    assert message in str(error.value)


@pytest.mark.host
def test_the_trial_passes_where_the_service_has_the_runs_own(scoring):
    pytest.importorskip("aiohttp", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.group_scoring import try_service

    config = HookConfig(method=parse_settings({"name": "restrain"}))
    try_service(config, scoring().url, PROMPT, 16, NeededReference(**NEEDED))


@pytest.mark.host
def test_a_service_of_before_which_compares_nothing_is_refused():
    pytest.importorskip("aiohttp", reason="needs the training stack: make install")
    from restrain_openrlhf.hook.group_scoring import try_service
    from tests.hook.test_group_scoring import score_reply, service

    def earlier(body):
        reply = json.loads(score_reply(body))
        del reply["reference_compared"]
        return json.dumps(reply).encode()

    config = HookConfig(method=parse_settings({"name": "restrain"}))
    with service((200, earlier)) as (url, _), pytest.raises(ScoreServiceError, match="of an earlier version"):
        try_service(config, url, PROMPT, 16, NeededReference(**NEEDED))


def test_whole_groups_are_refused_with_the_difference(scoring):
    group = {"prompt": PROMPT, "responses": [{"text": r"\boxed{12}", "finished": True}] * 16}
    replica = scoring(**MODEL)
    for reference, status in ((NEEDED, 409), ({**NEEDED, "model_fingerprint": "commit:dead"}, 200), (None, 200)):
        reply = httpx.post(f"{replica.url}/v1/score", json={"groups": [group], "reference": reference})
        assert reply.status_code == status, reply.text
    unknown = httpx.post(f"{replica.url}/v1/score", json={"groups": [group], "reference": {"dtype": "bf16"}})
    assert unknown.status_code == 422, "what it does not know, a service cannot compare"


@pytest.fixture
def first_group(agent_alone):
    """The first group of the agent alone, drawn by the host's own generate_responses."""
    from vllm import SamplingParams

    from tests.hook.in_process import Letters, ScriptedActor

    def first_group(document):
        agent_alone(yaml.safe_dump(document))
        actor = ScriptedActor({PROMPT: [rf"\boxed{{{answer}}}" for answer in NINE_TO_SEVEN]})
        actor.kwargs = {"model": str(ADDITION.model)}
        drawing = actor.generate_responses(
            prompt=PROMPT,
            label="",
            sampling_params=SamplingParams(max_tokens=40, temperature=1.0, top_p=1.0),
            max_length=64,
            hf_tokenizer=Letters(),
            num_samples=16,
        )
        return [row["reward"] for row in asyncio.run(drawing)]

    return first_group


@pytest.mark.host
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by_service", [False, True], ids=["in process", "by a service"])
@pytest.mark.parametrize(("made", "message"), [*OTHERS[:-1], ({}, None)])
def test_the_agent_alone_refuses_it_at_its_first_group(
    first_group, scoring, tmp_path, method, by_service, made, message
):
    own = {"model_fingerprint": model_fingerprint(str(ADDITION.model)), **made}
    place = {"service": scoring(method, **own).url} if by_service else {"reference": str(made_by_hand(tmp_path, **own))}
    document = {"method": {"name": method}, **place}
    if message is None:
        assert first_group(document)[0] > 0
    else:
        with pytest.raises((ReferencePassError, ScoreServiceError)) as error:
            first_group(document)
        assert message in str(error.value)


@pytest.mark.host
@pytest.mark.parametrize("by_service", [False, True], ids=["in process", "by a service"])
def test_other_sampling_is_taken_where_the_configuration_says_so_and_another_model_never(
    first_group, scoring, tmp_path, by_service
):
    allowed = {"method": {"name": "restrain"}, "reference_n": 2, "reference_sampling": "any"}

    def rewards(**made):
        made = {**GREEDY, **made}
        if by_service:
            return first_group({**allowed, "service": scoring(**made).url})
        return first_group({**allowed, "reference": str(made_by_hand(tmp_path, **made))})

    assert len(rewards(model_fingerprint=model_fingerprint(str(ADDITION.model)))) == 16
    with pytest.raises((ReferencePassError, ScoreServiceError), match="made for another model"):
        rewards(**MODEL)


def test_a_service_that_gathers_groups_starts_with_other_sampling_where_its_configuration_says_so(services, tmp_path):
    path = made_by_hand(tmp_path, **GREEDY)
    gathers = {"group_size": 16, "end_of_text": END}
    said = refused("serve", "--config", served(tmp_path, path, service=gathers, reference_n=2))
    assert "set reference_sampling: any to use it as it is" in said
    others = {"reference_n": 2, "reference_sampling": "any"}
    replica = services.start(method={"name": "restrain"}, reference=str(path), others=others, **gathers)
    assert replica.http.get("/readyz").status_code == 200
