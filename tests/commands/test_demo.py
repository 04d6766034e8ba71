"""The demo: its tasks, what it says in a new folder and in a finished one, and its report. Nothing is sampled."""

import json
from types import SimpleNamespace

import pytest

from restrain_openrlhf.commands import demo as command
from restrain_openrlhf.commands.demo import Change, MethodResult, train_folder, write_report
from restrain_openrlhf.config.command_line import find_config
from restrain_openrlhf.config.yaml_file import load_run_config
from restrain_openrlhf.data.demo_tasks import premise, tasks
from restrain_openrlhf.data.demo_tasks.problems import write_prompts
from restrain_openrlhf.data.demo_tasks.tasks import CAPITALS, PREMISE, TASKS
from restrain_openrlhf.errors import DataError
from restrain_openrlhf.evaluation.result import Scores
from restrain_openrlhf.hook.run_log import append_step
from restrain_openrlhf.records.folder import Completion, RunFolder
from restrain_openrlhf.records.metrics import HELD_OUT_FILE, append_row
from tests.command_line import restrain
from tests.hook.test_trainer_metrics import votes


def operands(problems):
    """Unordered, so that 123+456 and 456+123 count as one addition."""
    return {frozenset(problem.problem.removesuffix("=").split("+")) for problem in problems}


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_additions_are_seeded_different_and_disjoint_and_gold_is_the_sum(seed):
    training, heldout = tasks.training_problems(3000, seed), tasks.heldout_problems(3000, seed)
    assert training == tasks.training_problems(3000, seed)
    assert len({problem.problem for problem in training}) == 3000
    assert not operands(training) & operands(heldout)
    for problem in training[:50] + heldout[:50]:
        first, second = problem.problem.removesuffix("=").split("+")
        assert problem.answer == str(int(first) + int(second))


def test_products_are_disjoint_beyond_one_column_and_gold_is_the_last_digit_of_each():
    training, heldout = PREMISE.training_problems(2000), PREMISE.heldout_problems(200)
    assert training == PREMISE.training_problems(2000)
    assert len({problem.problem for problem in training}) == 2000
    shared = {problem.problem for problem in training} & {problem.problem for problem in heldout}
    assert shared
    assert all(len(text.partition("*")[0].strip(".")) == 1 for text in shared)
    assert premise.text((7, 6, 3), (6, 6, 1)) == "763...*661...="
    for problem in training[:100]:
        a, b = (side.strip(".=") for side in problem.problem.split("*"))
        assert problem.answer == "".join(str(int(x) * int(y) % 10) for x, y in zip(a, b, strict=True))
        assert problem.answer[0] != "0"


@pytest.mark.parametrize("name", ["capitals", "arithmetic"])
def test_plain_questions_have_two_halves_without_a_common_problem_and_the_right_gold(name):
    task = TASKS[name]
    training, heldout = task.training_set(task.steps * 8), task.heldout_problems(task.heldout)
    assert (len(training), len(heldout)) == (56, 48)
    asked = [frozenset(problem.problem.rstrip("?").split()) for problem in training + heldout]
    assert not set(asked[:56]) & set(asked[56:]), "in any order of words"
    gold = {problem.id: problem.answer for problem in training + heldout}
    if name == "capitals":
        # Brazil's is in neither half: others name it Brasilia and Brasília.
        assert {gold[country] for country in ("Canada", "Turkey")} == {"Ottawa", "Ankara"}
    for id, answer in gold.items() if name == "arithmetic" else ():
        first, operation, second = id.split()
        assert int(answer) == eval(f"{first} {'+' if operation == 'plus' else '*'} {second}") < 100


@pytest.mark.parametrize(
    ("problems", "most"),
    [(tasks.heldout_problems, tasks.MOST_ADDITIONS), (PREMISE.training_problems, premise.MOST_PROBLEMS)],
)
def test_a_number_that_a_task_cannot_give_is_refused(problems, most):
    for count in (-1, 0, most + 1):
        with pytest.raises(DataError, match=f"1 to {most:,}"):
            problems(count)


def test_the_training_file_has_no_gold(tmp_path):
    write_prompts(tmp_path / "p.jsonl", PREMISE.training_problems(50))
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("id", "problem")}


def test_a_response_and_its_end_fit_the_demo_s_budget():
    transformers = pytest.importorskip("transformers", reason="needs the training stack: make install")
    tokenizer = transformers.AutoTokenizer.from_pretrained(PREMISE.model)
    budget = load_run_config(find_config(PREMISE.preset)).openrlhf
    prompt, response = (tokenizer(text)["input_ids"] for text in ("1" * 6 + "*" + "1" * 6 + "=", r"\boxed{111111}"))
    assert len(response) + 1 <= int(budget["rollout.max_new_tokens"])
    assert len(prompt) + int(budget["rollout.max_new_tokens"]) <= int(budget["data.max_len"])


def accuracy(value):
    votes = min(1.0, value + 0.2)
    return Scores(
        pass_at_1=value, low=value - 0.02, high=value + 0.02, pass_at_k={}, maj_at_n=votes, missing_share=0.01
    )


def made(method, after, greedy=None, trained_on=None):
    return MethodResult(method, 200, Change(accuracy(0.5), accuracy(after), greedy), 0.1, trained_on)


def demo_of(out, method, after):
    """The folder of a method that ran one step."""
    run = train_folder(out, method)
    run.mkdir(parents=True)
    append_step(run / "metrics.jsonl", 1, {"kl": 0.1}, votes())
    append_row(run / HELD_OUT_FILE, 0, {"eval_default_pass1": 0.5, "eval_num_samples": 1600})
    append_row(run / HELD_OUT_FILE, 1, {"eval_default_pass1": after, "eval_num_samples": 1600})
    return run.parent


def test_a_report_has_a_sentence_for_each_method_and_opens_with_the_curves(tmp_path):
    results = [made("restrain", 0.75), made("ttrl", 0.3)]
    for each in results:
        demo_of(tmp_path, each.method, each.held_out.after.pass_at_1)
    text = write_report(tmp_path, PREMISE, results).read_text()
    assert "restrain: pass@1 on 200 held-out problems rose from 50.0% (base model) to 75.0% (trained model)" in text
    assert "ttrl: pass@1 on 200 held-out problems fell from 50.0% (base model) to 30.0% (trained model)" in text
    assert text.count("data:image/png") == 2
    assert text.index("<td>base model</td>") < text.index("<td>restrain</td>") < text.index("<td>ttrl</td>")
    assert text.index("Held-out pass@1 by training step") < text.index("Votes")


def test_a_pretrained_model_s_report_has_greedy_answers_and_the_problems_trained_on(tmp_path):
    trained_on = Change(before=accuracy(0.4), after=accuracy(0.9), greedy=(0.61, 0.62))
    demo_of(tmp_path, "ttrl", 0.6)
    text = write_report(tmp_path, CAPITALS, [made("ttrl", 0.6, (0.41, 0.57), trained_on)]).read_text()
    assert "Greedily it went from 41.0% to 57.0%; on the problems trained on, pass@1 from 40.0% to 90.0%" in text
    assert "and greedily from 61.0% to 62.0%." in text
    held_out, trained = text.split("<h2>Accuracy on the problems trained on</h2>")
    for part, base, policy in ((held_out, "41.0%", "57.0%"), (trained, "61.0%", "62.0%")):
        assert "<th>greedy</th>" in part
        assert part.index(f"<td>{base}</td>") < part.index("<td>ttrl</td>") < part.index(f"<td>{policy}</td>")


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Each part leaves its file, and does nothing else."""

    def train(config, _on_step):
        folder = RunFolder(config.run_dir)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.mark_completed(Completion(steps=40, stopped=None))
        return folder

    monkeypatch.setattr(command, "_sample", lambda *given, **_how: given[3].touch())
    monkeypatch.setattr(command, "train", train)
    monkeypatch.setattr(command, "load_reference", lambda _path: SimpleNamespace(rows=[]))
    monkeypatch.setattr(command, "accuracy", lambda *_given: accuracy(0.5))
    monkeypatch.setattr(command, "read_steps", lambda _path: [SimpleNamespace(votes={"top_answer_share": 0.1})])
    monkeypatch.setattr(command, "write_report", lambda out, *_: out / "report.html")
    return tmp_path / "demo"


def said(out):
    done = restrain("demo", "--out", out)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_each_part_of_each_method_is_said(parts):
    first = said(parts)
    assert "1 of 8: restrain: the frozen model votes on every prompt\n" in first
    assert "3 of 8: restrain: training, beginning with Ray and vLLM" in first
    assert "5 of 8: ttrl: the frozen model votes on every prompt" in first


def test_a_folder_of_another_task_is_refused_and_keeps_its_files(parts):
    said(parts)
    before = {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()}
    done = restrain("demo", "--task", "premise", "--out", parts)
    assert done.returncode == 2
    assert f"{parts}: holds a demo with other problems" in done.stderr
    assert "Choose another --out, or that task." in done.stderr
    assert {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()} == before
