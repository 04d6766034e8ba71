"""`restrain premise`: what it prints, writes and warns of (at status 0), and what bad input gets."""

import json

import pytest

from restrain_openrlhf.answers.extract import EXTRACTOR_VERSION
from restrain_openrlhf.commands.premise.calibration import best_kappa
from restrain_openrlhf.evaluation.grade import SizeRow
from tests.command_line import refused, restrain
from tests.commands.premise.passes import counted, pass_of_responses, write_gold, write_pass
from tests.reference.made import write_reference


def pass_with_shortcut(folder, words="?"):
    """40 prompts that give up with `words` in 5 of 16, `%d` in them being the prompt; and 40 with a majority of 12."""
    unsure = [
        counted({words.replace("%d", str(place)): 5, f"a{place}": 4, **{f"b{place} {each}": 1 for each in range(7)}})
        for place in range(40)
    ]
    sure = [counted({f"c{place}": 12, f"d{place}": 4}) for place in range(40)]
    return write_pass(folder / "ref.jsonl", [*unsure, *sure])


def pass_without(folder):
    """As `pass_with_shortcut`, each prompt giving up with words of its own."""
    return pass_with_shortcut(folder, "?%d")


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


def test_tables_name_methods_and_findings(tmp_path):
    done = restrain("premise", "--reference", pass_with_shortcut(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "warning: A shared shortcut" in text
    assert "1 warning. " in text
    assert "srt_easy" in text
    assert "restrain penalises 0.0% of the prompts" in text


def test_wrong_majorities_that_are_large_are_warned_of_with_gold_and_not_known_without(tmp_path):
    """60 prompts with a majority of 12; where of 30 it is wrong, that is half of the squared advantage."""
    groups = [counted({f"a{place}": 12, f"b{place}": 4}) for place in range(60)]
    reference = write_pass(tmp_path / "ref.jsonl", groups)
    half = write_gold(tmp_path / "half.jsonl", [f"{'ab'[place % 2]}{place}" for place in range(60)])
    (text,) = warnings(document("--reference", reference, "--gold", half))
    assert "fails with the probability 100%" in text
    assert "(here 50%) is on prompts whose majority is wrong" in text
    right = write_gold(tmp_path / "right.jsonl", [f"a{place}" for place in range(60)])
    assert warnings(document("--reference", reference, "--gold", right)) == []
    blind = document("--reference", reference)
    assert warnings(blind) == []
    assert any(note.startswith("There is no gold") for note in notes(blind))


def test_keys_that_are_set_reach_the_method_and_a_penalty_is_a_warning_beside_a_shortcut_alone(tmp_path):
    reference = pass_without(tmp_path)
    penalized = document("--reference", reference, *sets("kappa=6"))
    assert penalized["methods"][0]["prompts_penalized"] == 0.5
    assert any("`delta: 0` first" in note for note in notes(penalized))
    off = document("--reference", reference, *sets("kappa=6", "delta=0", "sigma=0.25"))
    assert (off["methods"][0]["penalized"], off["settings"]["sigma"]) == (0, 0.25)
    beside = document("--reference", pass_with_shortcut(tmp_path), *sets("kappa=6"))
    assert any("`delta: 0` first" in text for text in warnings(beside))
    unanimous = write_pass(tmp_path / "all.jsonl", [counted({f"a{place}": 4}) for place in range(9)])
    flat = document("--reference", unanimous)
    assert warnings(flat) == ["restrain has no advantage on any prompt: nothing would be learned."]


def config(folder, method="name: restrain, kappa: 2"):
    path = folder / "run.yaml"
    path.write_text(
        f"run_dir: run\nmethod: {{{method}}}\nopenrlhf:\n  rollout.n_samples_per_prompt: 8\n", encoding="utf-8"
    )
    return path


def test_a_configuration_gives_the_method_and_the_size_of_a_group(tmp_path):
    found = document("--reference", pass_without(tmp_path), "--config", config(tmp_path), *sets("kappa=4"))
    assert (found["n"], found["group_size"], found["settings"]["kappa"]) == (16, 8, 4)
    votes = config(tmp_path, "name: ttrl, votes: 16, train_on: 8")
    found = document("--reference", pass_without(tmp_path), "--config", votes)
    assert (found["group_size"], found["methods"][0]["name"]) == (16, "ttrl")


@pytest.mark.parametrize(("count", "is_many"), [(3, True), (2, False)])
def test_more_than_a_fifth_without_an_answer_is_a_warning_with_three_of_what_was_not_read(tmp_path, count, is_many):
    code = ["```python\nprint(5)\n```", "SELECT a FROM t WHERE x = 5", '{"total": 5}', "def f():\n    return 5"]
    groups = [[code[place % 4]] * count + [r"\boxed{1}"] * (10 - count) for place in range(8)]
    found = warnings(document("--reference", pass_of_responses(tmp_path / "ref.jsonl", groups)))
    text = "".join(one for one in found if "do not vote" in one)
    assert text.startswith("30.0% of the frozen model's rollouts have no answer") is is_many
    assert ("'```python print(5) ```'; 'SELECT a FROM t WHERE x = 5'; '{\"total\": 5}'. An" in text) is is_many


def test_what_is_read_is_shown_with_the_kind_whose_answers_agree_most(write_jsonl):
    said = ["It is [b]Paris[/b].", "Paris!", "Paris, of course.", "I wonder."]
    rows = write_jsonl("rollouts.jsonl", [{"id": 1, "problem": "Where is [it]?", "responses": said}])
    done = restrain("premise", "--rollouts", rows, "--answers", "{name: text, read: agreed}")
    text = " ".join(done.stdout.split())
    assert "Where is [it]? 3 Paris It is [b]«Paris»[/b]. 1 I wonder. «I wonder.» " in text
    assert "'text, read: agreed' reads 100% (75% agree with another one of their group)" in text
    found = document("--rollouts", rows, "--answers", "number")
    assert [(each["rollouts"], each["answer"], each["response"]) for each in found["read"]] == [(4, None, said[0])]
    assert (found["kinds"][0]["kind"], found["kinds"][0]["agreeing"]) == ("text, read: agreed", 0.75)


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


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def files(tmp_path):
    """A pass of 16 rollouts, and files and configurations that do not go with it."""
    whole = pass_without(tmp_path).read_text()
    (tmp_path / "cut").mkdir()
    pass_without(tmp_path / "cut").write_text(whole.splitlines(keepends=True)[0])
    (tmp_path / "prompts.jsonl").write_text(lines({"problem": "p"}))
    (tmp_path / "bare.jsonl").write_text(lines({"id": 1, "problem": "p"}))
    uneven = [{"id": place, "problem": f"p{place}", "responses": ["1"] * (place + 1)} for place in range(2)]
    (tmp_path / "uneven.jsonl").write_text(lines(*uneven))
    twice = [{"id": name, "problem": "p", "responses": ["1"], "answer": name} for name in ("1", "2")]
    (tmp_path / "twice.jsonl").write_text(lines(*twice))
    (tmp_path / "other.jsonl").write_text(lines({"problem": "another", "answer": "1"}))
    for name, method in {"ttrl": "", "ettrl": "", "entropies": "ettrl, trees: 8, forks: 1, branches: 1"}.items():
        (tmp_path / name).mkdir()
        config(tmp_path / name, f"name: {method or name}")
    return tmp_path


def test_a_configurations_own_pass_must_be_of_its_model(files):
    (files / "config.json").write_text("{}")
    own = {"run_dir": "run", "reference": str(files / "ref.jsonl"), "method": {"name": "restrain"}}
    (files / "own.yaml").write_text(json.dumps({**own, "openrlhf": {"actor.model_name_or_path": str(files)}}))
    assert "was made for another model" in refused("premise", "--config", files / "own.yaml")
    named = ("--reference", files / "ref.jsonl", "--config", files / "own.yaml")
    assert restrain("premise", *named).returncode == 0, "the reference of another run, which the user names"


@pytest.mark.parametrize(
    ("prompts", "flags", "why"),
    [
        ("abcd", "", None),
        ("abcx", "", "other prompts than"),
        ("abc", "", "4 prompts, of which 3 are among its 3"),
        ("abcde", "data.max_samples: 4", None),
        ("abcd", "data.input_template: 'Q: {}'", "another template"),
    ],
)
def test_a_configurations_own_pass_must_be_of_its_prompts(tmp_path, prompts, flags, why):
    reference = write_reference(tmp_path / "ref.jsonl", dict.fromkeys("abcd", "1123"))
    (tmp_path / "prompts.jsonl").write_text(lines(*({"problem": problem} for problem in prompts)))
    own = f"run_dir: run\nreference: {reference}\nmethod: {{name: restrain}}\nopenrlhf:\n  data.input_key: problem\n"
    (tmp_path / "own.yaml").write_text(f"{own}  data.prompt_dataset: {tmp_path}/prompts.jsonl\n  {flags}\n")
    done = restrain("premise", "--config", tmp_path / "own.yaml")
    assert done.returncode == (2 if why else 0), done.stderr
    assert (why or "") in done.stderr


REF = "--reference {}/ref.jsonl"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "Give one file to read"),
        (REF + " --rollouts {}/ref.jsonl", "Give one file to read"),
        ("--reference {}/none.jsonl", "no such file"),
        ("--reference {}", "is a folder"),
        (REF + " --gold {}/none.jsonl", "no such file"),
        (REF + " --answers math", "--answers belongs to --rollouts only"),
        ("--reference {}/prompts.jsonl", "provenance"),
        (REF + " --gold {}/prompts.jsonl", "line 1: answer"),
        ("--rollouts {}/bare.jsonl", "line 1: responses"),
        ("--rollouts {}/uneven.jsonl", "prompts have [1, 2] rollouts"),
        ("--rollouts {}/twice.jsonl", "the problem of '2' has two answers in it"),
        (REF + " --gold {}/other.jsonl", "none of its 1 problems is in"),
        ("--reference {}/cut/ref.jsonl", "1 of 80 prompts"),
        (REF + " --config {}/ttrl/run.yaml --set kappa=3", "'kappa' is not a setting of ttrl"),
        (REF + " --config {}/ettrl/run.yaml", "has 16 rollouts per prompt, but the configuration's groups have 60"),
        (REF + " --config {}/entropies/run.yaml", "The method needs the mean token entropy"),
    ],
)
def test_what_cannot_be_read_or_tried_is_refused(files, words, said):
    assert said in refused("premise", *words.format(*[files] * words.count("{}")).split())


def sized(*rows):
    """Majorities by size: (size, prompts, right)."""
    return [
        SizeRow(
            size=m,
            problems=n,
            weight=n,
            draws=n,
            majority_accuracy=r / n,
            majority_low=0,
            majority_high=1,
            mean_accuracy=0,
        )
        for m, n, r in rows
    ]


@pytest.mark.parametrize(
    ("rows", "kappa"),
    [
        ([(1, 18, 1), (2, 7, 4), (3, 6, 5)], 2),  # errors of 1, 2 and 3: 21, 5, 6
        ([(2, 10, 9), (5, 10, 9)], 0),
        ([(2, 10, 1), (5, 10, 1)], 6),
        ([(2, 10, 5), (5, 10, 10)], 0),  # a tie goes to the smaller
    ],
)
def test_the_best_kappa_by_hand(rows, kappa):
    assert best_kappa(sized(*rows)) == kappa


@pytest.mark.parametrize(
    ("right_of_two", "given", "said"),
    [
        (36, 3, "more often than not, and kappa: 3 penalises them (90% [77%, 96%] of 40 prompts). Try kappa: 0."),
        (4, 2, "less often than not, and kappa: 2 believes them (10% [4%, 23%] of 40 prompts). Try kappa: 3."),
        (22, 3, None),
        (36, 2, None),
    ],
)
def test_another_kappa_is_named_where_gold_tells_it(tmp_path, right_of_two, given, said):
    groups = [["1", "1", "2", "3"]] * 40 + [["1", "1", "1", "2"]] * 40
    gold = ["1" if n < right_of_two else "9" for n in range(40)] + ["1"] * 40
    reference, answers = write_pass(tmp_path / "ref.jsonl", groups), write_gold(tmp_path / "g.jsonl", gold)
    found = document("--reference", reference, "--gold", answers, "--set", f"kappa={given}")
    texts = [each["text"] for each in found["findings"]]
    found = [text for text in texts if text.startswith("Majorities of 2 of 4 are right ")]
    assert [text.removeprefix("Majorities of 2 of 4 are right ") for text in found] == ([said] if said else [])
