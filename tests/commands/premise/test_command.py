"""`restrain premise`: what it prints, writes and warns of (at status 0), and what bad input gets."""

import json

import pytest

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION
from tests.command_line import refused, restrain
from tests.commands.premise.passes import counted, pass_of_responses, write_gold, write_pass


def pass_with_shortcut(folder, count=40):
    """`count` prompts that give up in 5 of 16, and as many with a majority of 12."""
    unsure = [
        counted({"?": 5, f"a{place}": 4, **{f"b{place} {each}": 1 for each in range(7)}}) for place in range(count)
    ]
    sure = [counted({f"c{place}": 12, f"d{place}": 4}) for place in range(count)]
    return write_pass(folder / "ref.jsonl", [*unsure, *sure])


def pass_without(folder, count=40):
    """As `pass_with_shortcut`, each prompt giving up with words of its own."""
    unsure = [
        counted({f"?{place}": 5, f"a{place}": 4, **{f"b{place} {each}": 1 for each in range(7)}})
        for place in range(count)
    ]
    sure = [counted({f"c{place}": 12, f"d{place}": 4}) for place in range(count)]
    return write_pass(folder / "ref.jsonl", [*unsure, *sure])


def document(*words):
    done = restrain("premise", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sets(*keys):
    return [word for key in keys for word in ("--set", key)]


def warnings(found):
    return [one["text"] for one in found["findings"] if one["level"] == "warning"]


def notes(found):
    return [one["text"] for one in found["findings"] if one["level"] == "note"]


def test_a_planted_shortcut_is_warned_of_with_its_numbers_and_the_status_stays_0(tmp_path):
    found = document("--reference", pass_with_shortcut(tmp_path))
    (text,) = warnings(found)
    assert "'?' is 15.6% of all rollouts, given at 40 of 80 prompts (any other answer: at 1 or fewer)" in text
    assert "and the majority at 40." in text
    assert found["sizes"] == [0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0]


def test_without_the_shortcut_there_is_no_warning(tmp_path):
    assert warnings(document("--reference", pass_without(tmp_path))) == []


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_strict_ends_with_status_2_on_a_warning_alone(more, tmp_path):
    done = restrain("premise", "--reference", pass_with_shortcut(tmp_path), "--strict", *more)
    assert done.returncode == 2
    assert "shared shortcut" in done.stdout
    assert done.stderr.startswith("error: restrain premise warns, and --strict was given.")
    quiet = restrain("premise", "--reference", pass_without(tmp_path), "--strict", *more)
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_tables_name_methods_answers_and_findings(tmp_path):
    done = restrain("premise", "--reference", pass_with_shortcut(tmp_path))
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "warning: A shared shortcut" in text
    assert "1 warning. " in text
    assert "srt_easy" in text
    assert "restrain penalises 0.0% of the prompts" in text


def test_wrong_majorities_that_are_large_are_warned_of_with_gold_and_not_known_without(tmp_path):
    """60 prompts with a majority of 12; of 30 it is wrong: half of the squared advantage."""
    groups = [counted({f"a{place}": 12, f"b{place}": 4}) for place in range(60)]
    reference = write_pass(tmp_path / "ref.jsonl", groups)
    gold = write_gold(tmp_path / "gold.jsonl", [f"{'ab'[place % 2]}{place}" for place in range(60)])
    (text,) = warnings(document("--reference", reference, "--gold", gold))
    assert "Spurious majorities where restrain learns: 50% [37%, 63%]" in text
    assert "`srt_easy` with `easy_cutoff` trains on those alone" in text
    blind = document("--reference", reference)
    assert warnings(blind) == []
    assert any(
        note.startswith("There is no gold, so whether majorities are right is not known") for note in notes(blind)
    )


def test_right_majorities_are_not_warned_of(tmp_path):
    groups = [counted({f"a{place}": 12, f"b{place}": 4}) for place in range(60)]
    reference = write_pass(tmp_path / "ref.jsonl", groups)
    gold = write_gold(tmp_path / "gold.jsonl", [f"a{place}" for place in range(60)])
    assert warnings(document("--reference", reference, "--gold", gold)) == []


def test_keys_that_are_set_reach_the_method(tmp_path):
    reference = pass_without(tmp_path)
    penalized = document("--reference", reference, *sets("kappa=6"))
    assert penalized["methods"][0]["prompts_penalized"] == 0.5
    assert any("`delta: 0` first" in note for note in notes(penalized))
    off = document("--reference", reference, *sets("kappa=6", "delta=0", "sigma=0.25"))
    assert (off["methods"][0]["penalized"], off["settings"]["sigma"]) == (0, 0.25)


def test_a_penalty_beside_a_shortcut_is_a_warning(tmp_path):
    found = document("--reference", pass_with_shortcut(tmp_path), *sets("kappa=6"))
    assert any("On-policy it rewards any agreement" in text for text in warnings(found))


def config(folder, method="name: restrain, kappa: 2"):
    path = folder / "run.yaml"
    path.write_text(
        f"run_dir: run\nmethod: {{{method}}}\nopenrlhf:\n  rollout.n_samples_per_prompt: 8\n", encoding="utf-8"
    )
    return path


def test_a_configuration_gives_the_method_and_the_size_of_a_group(tmp_path):
    found = document("--reference", pass_without(tmp_path), "--config", config(tmp_path), *sets("kappa=4"))
    assert (found["n"], found["group_size"], found["settings"]["kappa"]) == (16, 8, 4)


def test_a_method_without_any_advantage_is_warned_of(tmp_path):
    found = document(
        "--reference", write_pass(tmp_path / "ref.jsonl", [counted({f"a{place}": 4}) for place in range(9)])
    )
    assert warnings(found) == ["restrain has no advantage on any prompt: nothing would be learned."]


def test_rollouts_of_the_base_model_do_in_place_of_a_reference(write_jsonl):
    rows = [
        {"id": place, "problem": f"p{place}", "responses": [rf"\boxed{{{place}}}"] * 3 + ["none"], "answer": place}
        for place in range(30)
    ]
    found = document("--rollouts", write_jsonl("rollouts.jsonl", rows))
    assert (found["sizes"], found["missing_share"]) == ([0, 0, 0, 30, 0], 0.25)
    assert found["gold"]["pass_at_1"] == 0.75


def unread(count, of):
    """Groups of which `count` in `of` rollouts are code, SQL or JSON, which end in a number that is no answer."""
    code = ["```python\nprint(5)\n```", "SELECT a FROM t WHERE x = 5", '{"total": 5}', "def f():\n    return 5"]
    return [[code[place % 4]] * count + [r"\boxed{1}"] * (of - count) for place in range(8)]


def test_more_than_a_fifth_without_an_answer_is_a_warning_with_three_of_what_was_not_read(tmp_path):
    found = document("--reference", pass_of_responses(tmp_path / "ref.jsonl", unread(3, 10)))
    (text,) = [one for one in warnings(found) if "do not vote" in one]
    assert text.startswith("30.0% of the frozen model's rollouts have no answer, and do not vote. Not read, by their")
    assert "'```python print(5) ```'; 'SELECT a FROM t WHERE x = 5'; '{\"total\": 5}'. An answer is" in text


def test_a_fifth_without_an_answer_is_no_warning(tmp_path):
    found = document("--reference", pass_of_responses(tmp_path / "ref.jsonl", unread(2, 10)))
    assert [one for one in warnings(found) if "do not vote" in one] == []


def test_a_problem_that_comes_twice_has_each_groups_own_verdicts(write_jsonl):
    """Of twelve rollouts 3 + 0 + 4 are right, and two of three majorities."""
    answers = [("1+1?", "2", "2223"), ("1+1?", "2", "3333"), ("2+2?", "4", "4444")]
    rows = [
        {"id": place, "problem": problem, "answer": gold, "responses": [f"\\boxed{{{each}}}" for each in given]}
        for place, (problem, gold, given) in enumerate(answers)
    ]
    gold = document("--rollouts", write_jsonl("rollouts.jsonl", rows))["gold"]
    assert (gold["pass_at_1"], gold["majority_right"]) == (pytest.approx(7 / 12), pytest.approx(2 / 3))


def test_real_rollouts_have_no_shortcut(shared):
    found = document("--rollouts", shared / "rollouts" / "math_50x8.jsonl")
    assert warnings(found) == []
    assert found["sizes"] == [0, 0, 2, 2, 2, 1, 1, 0, 42]


def test_the_premise_tasks_pass_is_warned_of_for_its_shortcut_alone(shared, tmp_path):
    """Its answers are numbers and "?", each a class of its own; the file is of an extractor without classes."""
    folder = shared / "examples" / "premise" / "data"
    if not (folder / "ref2.jsonl").is_file():
        pytest.skip("needs the premise task's pass beside the checkout, in ../shared/examples/premise/data")
    rows = [json.loads(line) for line in (folder / "ref2.jsonl").read_text().splitlines()]
    keys = [tuple(dict.fromkeys(each for each in row["answers"] if each is not None)) for row in rows]
    classes = [
        [None if each is None else found.index(each) for each in row["answers"]]
        for found, row in zip(keys, rows, strict=True)
    ]
    classed = [row | {"classes": c, "keys": k} for row, c, k in zip(rows, classes, keys, strict=True)]
    (tmp_path / "ref2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in classed))
    made = json.loads((folder / "ref2.jsonl.provenance.json").read_text()) | {"extractor_version": EXTRACTOR_VERSION}
    (tmp_path / "ref2.jsonl.provenance.json").write_text(json.dumps(made))
    (text,) = warnings(document("--reference", tmp_path / "ref2.jsonl"))
    assert "'?' is 15.9% of all rollouts, given at 514 of 640 prompts" in text


def test_what_cannot_be_read_is_refused(tmp_path):
    reference = pass_without(tmp_path)
    assert "Give one file to read" in refused("premise")
    assert "Give one file to read" in refused("premise", "--reference", reference, "--rollouts", reference)
    assert "no such file" in refused("premise", "--reference", tmp_path / "none.jsonl")
    assert "is a folder" in refused("premise", "--reference", tmp_path)
    assert "no such file" in refused("premise", "--reference", reference, "--gold", tmp_path / "none.jsonl")


def test_files_of_another_kind_are_refused(tmp_path, write_jsonl):
    reference = pass_without(tmp_path)
    prompts = write_jsonl("prompts.jsonl", [{"problem": "p"}])
    assert "provenance" in refused("premise", "--reference", prompts)
    assert "line 1: answer" in refused("premise", "--reference", reference, "--gold", prompts)
    assert "line 1: responses" in refused("premise", "--rollouts", write_jsonl("r.jsonl", [{"id": 1, "problem": "p"}]))
    uneven = [{"id": place, "problem": f"p{place}", "responses": ["1"] * (place + 1)} for place in range(2)]
    assert "prompts have [1, 2] rollouts" in refused("premise", "--rollouts", write_jsonl("u.jsonl", uneven))
    other = write_jsonl("other.jsonl", [{"problem": "another", "answer": "1"}])
    assert "none of its 1 problems is in" in refused("premise", "--reference", reference, "--gold", other)
    reference.write_text(reference.read_text().splitlines(keepends=True)[0])
    assert "1 of 80 prompts" in refused("premise", "--reference", reference)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("kappa=-1", "kappa: "),
        ("kappa=2.5", "must be a whole count"),
        ("sigma=-1", "sigma: "),
        ("delta=.inf", "delta: "),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path, key, said):
    assert said in refused("premise", "--reference", pass_without(tmp_path), *sets(key))


def test_a_setting_that_the_configurations_method_has_not_is_refused(tmp_path):
    words = ("--reference", pass_without(tmp_path), "--config", config(tmp_path, "name: ttrl"))
    message = refused("premise", *words, *sets("kappa=3"))
    assert "'kappa' is not a setting of ttrl" in message


def test_a_reference_with_fewer_rollouts_than_a_group_is_refused(tmp_path):
    message = refused("premise", "--reference", pass_without(tmp_path), "--config", config(tmp_path, "name: ettrl"))
    assert "has 16 rollouts per prompt, but the configuration's groups have 60" in message


def test_a_vote_of_its_own_size_has_that_many_rollouts(tmp_path):
    votes = config(tmp_path, "name: ttrl, votes: 16, train_on: 8")
    found = document("--reference", pass_without(tmp_path), "--config", votes)
    assert (found["group_size"], found["methods"][0]["name"]) == (16, "ttrl")


def test_a_method_that_needs_more_than_answers_is_refused(tmp_path):
    block = "name: ettrl, etmr: false, votes: 16"
    message = refused("premise", "--reference", pass_without(tmp_path), "--config", config(tmp_path, block))
    assert "Entropy-based reshaping needs the mean token entropy" in message
