"""The demo's report: what it says, and the comparison of methods that ran in one folder."""

from restrain_openrlhf.demo.report import MethodResult, results_beside, write_report
from restrain_openrlhf.evaluation.result import Accuracy
from restrain_openrlhf.hook.trainer import append_step
from tests.hook.test_trainer_metrics import votes


def accuracy(value):
    return Accuracy(value, value - 0.02, value + 0.02, min(1.0, value + 0.2), 16, 200, 0.01)


def test_a_report_shows_its_own_result_and_compares_with_the_others(tmp_path):
    for method, after in (("ttrl", 0.8), ("restrain", 0.75)):
        folder = tmp_path / method
        (folder / "train").mkdir(parents=True)
        append_step(folder / "train" / "metrics.jsonl", 1, {"kl": 0.1}, votes())
        page = write_report(folder, method, folder / "train", accuracy(0.5), accuracy(after))
    text = page.read_text()
    assert "restrain: pass@1 on 200 held-out problems went from 50.0% to 75.0% (+25.0%)" in text
    assert text.count("data:image/png") == 5
    assert text.index("<td>ttrl</td>") < text.index("<td>restrain</td>")
    assert [result.method for result in results_beside(tmp_path / "restrain")] == ["ttrl", "restrain"]
    assert MethodResult.read(tmp_path / "ttrl" / "result.json").after == accuracy(0.8)
