"""The server: pages of groups, a run that goes on, whom it answers, and what its answers let a browser do."""

import os

import pytest

from restrain_openrlhf.commands.view import source
from restrain_openrlhf.commands.view.source import ViewedRuns, material
from restrain_openrlhf.records.kept import step_file
from tests.commands.view.runs import boxed, scored_group, small_run, write_run

pytest.importorskip("starlette", reason="needs the web stack: pip install restrain-openrlhf[service]")


def client(run):
    from starlette.testclient import TestClient

    from restrain_openrlhf.commands.view.server import application

    return TestClient(application(ViewedRuns(material(run, None))), base_url="http://127.0.0.1")


def test_the_list_comes_in_pages_and_each_prompt_once(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PAGE", 4)
    server = client(small_run(tmp_path))
    first = server.get("/api/groups").json()
    second = server.get("/api/groups", params={"start": first["next"]}).json()
    assert [(each["step"], each["group"]) for each in first["groups"]] == [(s, g) for s in (1, 2) for g in range(3)]
    assert [each["step"] for each in second["groups"]] == [3, 3, 3]
    assert (first["next"], second["next"], first["steps_read"], first["steps"]) == (2, None, 2, 3)
    assert (len(first["prompts"]), second["prompts"]) == (3, {})


def test_readers_at_different_places_get_what_one_alone_gets(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PAGE", 1)
    monkeypatch.setattr(source, "READERS", 1)
    run = small_run(tmp_path)
    alone, shared = client(run), client(run)
    pages = [alone.get("/api/groups", params={"start": place}).json() for place in range(3)]
    assert [each["flipped_from"] for page in pages for each in page["groups"]].count("4") == 1
    for place in (0, 1, 0, 2, 1, 2):
        assert shared.get("/api/groups", params={"start": place}).json() == pages[place]


def test_a_group_is_read_when_it_is_opened(tmp_path):
    opened = client(small_run(tmp_path)).get("/api/groups/0/1/0").json()
    assert [(each["answer"], each["votes"]) for each in opened["classes"]] == [("4", 3), ("5", 1)]
    assert opened["classes"][0]["rollouts"][0]["response"] == "so \\(x = \\boxed{4}\\)"
    assert opened["classes"][0]["rollouts"][0]["log_prob_gap"] == 0.002


def test_a_group_that_was_not_kept_and_a_place_that_is_none(tmp_path):
    server = client(small_run(tmp_path))
    assert server.get("/api/groups/0/1/9").status_code == 404
    assert server.get("/api/groups/0/9/0").status_code == 404
    assert server.get("/api/groups/1/1/0").status_code == 404
    assert server.get("/api/groups", params={"start": "x"}).status_code == 400
    assert server.get("/api/groups", params={"start": 99}).json()["groups"] == []
    assert server.get("/assets/../server.py").status_code == 404
    assert server.get("/assets/%2e%2e/server.py").status_code == 404


def test_a_run_that_goes_on_has_its_new_steps_at_the_next_load(tmp_path):
    server = client(small_run(tmp_path))
    assert len(server.get("/api/groups").json()["groups"]) == 9
    write_run(tmp_path, [scored_group(4, 0, "new", boxed("1"))])
    (tmp_path / "rollouts" / "step-000005.parquet.partial").write_bytes(b"half")
    page = server.get("/api/groups").json()
    assert (len(page["groups"]), page["steps"], len(page["prompts"])) == (10, 4, 4)


def test_a_step_that_is_written_again_is_read_again(tmp_path):
    server = client(small_run(tmp_path))
    assert server.get("/api/groups").json()["groups"][3]["flipped_from"] == "4"
    write_run(tmp_path, [scored_group(2, 0, "What is \\(2 + 3\\)?", boxed("4", "4"))])
    os.utime(step_file(tmp_path, 2), ns=(1, 1))
    groups = server.get("/api/groups").json()["groups"]
    assert [each["flipped_from"] for each in groups if each["group"] == 0] == [None, None, "4"]
    assert server.get("/api/groups/0/2/0").json()["classes"][0]["votes"] == 2


def test_a_damaged_step_is_left_out_with_a_note(tmp_path):
    run = small_run(tmp_path)
    server = client(run)
    step_file(run, 2).write_bytes(b"no parquet")
    page = server.get("/api/groups").json()
    assert [each["step"] for each in page["groups"]] == [1, 1, 1, 3, 3, 3]
    assert "step-000002.parquet: is not a complete Parquet file" in page["damaged"][0]
    reply = server.get("/api/groups/0/2/0")
    assert (reply.status_code, "is not a complete Parquet file" in reply.text) == (500, True)


def test_a_run_whose_first_step_is_damaged_can_be_seen_with_gold(tmp_path, write_jsonl):
    run = small_run(tmp_path)
    step_file(run, 1).write_bytes(b"no parquet")
    found = material(run, write_jsonl("gold.jsonl", [{"problem": "What is \\(2 + 3\\)?", "answer": "5"}]))
    page = ViewedRuns(found).page()
    assert [group.votes[0].right for group in page.groups if group.graded] == [True, True]


def test_responses_are_searched_in_any_case_and_letter_by_letter(tmp_path):
    run = write_run(tmp_path, [scored_group(1, 3, "p", ["So HERE (x+1) is it", "no"]), scored_group(2, 0, "p", ["no"])])
    (run / "rollouts" / "step-000003.parquet").write_bytes(b"no parquet")
    server = client(run)
    assert server.get("/api/search", params={"text": "here (X+1)"}).json() == ["0/1/3"]
    assert server.get("/api/search", params={"text": "NO"}).json() == ["0/1/3", "0/2/0"]
    assert server.get("/api/search", params={"text": "absent"}).json() == []


def test_two_runs_are_told_apart_and_share_the_numbers_of_answers(tmp_path):
    one = write_run(tmp_path / "demo" / "restrain" / "train", [scored_group(1, 0, "p", boxed("1", "1", "2"))])
    other = write_run(tmp_path / "demo" / "ttrl" / "train", [scored_group(2, 0, "p", boxed("2", "2", "1"))])
    found = material(one, None, beside=other)
    assert [run.name for run in found.runs] == ["restrain", "ttrl"]
    assert found.notes[0] == "Prompts in both runs: 1."
    assert [run.name for run in material(one, None).runs] == ["restrain/train"]
    page = ViewedRuns(found).page()
    assert [(group.run, group.flipped_from) for group in page.groups] == [(0, None), (1, None)]
    numbers = [{votes.answer: votes.number for votes in group.votes} for group in page.groups]
    assert numbers == [{"1": 0, "2": 1}] * 2
    assert len(page.prompts) == 1


def test_with_a_token_any_host_is_answered_and_without_it_nobody(tmp_path):
    from starlette.testclient import TestClient

    from restrain_openrlhf.commands.view.server import application

    server = TestClient(
        application(ViewedRuns(material(small_run(tmp_path), None)), "secret"), base_url="http://10.0.0.7"
    )
    for path in ("/", "/api/groups", "/api/groups/0/1/0", "/api/search?text=x"):
        assert server.get(path).status_code == 403
        assert server.get(path, params={"token": "secreT"}).status_code == 403
    assert server.get("/", params={"token": "secret"}).status_code == 200
    assert server.get("/api/groups", params={"token": "secret"}).status_code == 200
    assert server.get("/assets/page.js").status_code == 200
    assert server.get("/assets/../api/groups").status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8123", 200),
        ("localhost:8123", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("", 400),
    ],
)
def test_a_request_for_another_host_is_refused(tmp_path, host, status):
    server = client(small_run(tmp_path))
    for path in ("/", "/api/groups", "/assets/page.js"):
        assert server.get(path, headers={"host": host}).status_code == status


@pytest.mark.parametrize("path", ["/", "/api/groups", "/assets/page.js", "/nothing"])
def test_every_answer_allows_nothing_from_outside(tmp_path, path):
    headers = client(small_run(tmp_path)).get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
