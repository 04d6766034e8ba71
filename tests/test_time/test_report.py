"""The sentences and tables of an adaptation: accuracies beside the base model's large vote, how the run ended."""

from restrain_openrlhf.run.collapse import Collapse, Signal
from test_time.outcome import Outcome
from test_time.report import lead, run_table, score_tables
from tests.test_time.outcomes import outcome, score

SCORES = (
    score(),
    score("adapted model", pass_at_1=0.6, majority=0.7, n=16),
    score(benchmark="math500"),
    score("adapted model", benchmark="math500", pass_at_1=0.4, n=16),
)


def test_the_lead_without_gold_says_what_changed():
    assert lead(outcome()) == "4 answers, 1 of them changed by the adaptation."


def test_the_lead_with_gold_names_the_vote_that_must_be_beaten():
    assert lead(outcome(scores=SCORES)).endswith(
        "pass@1 went from 50.0% to 60.0%; a vote of 64 of the base model alone gives 75.0%."
    )


def test_the_lead_says_whose_answers_stand_after_an_alarm():
    early = outcome(alarm="why", ended_early=True, chosen_step=6)
    assert "Training was ended early: why; the answers are those of the model of step 6." in lead(early)
    assert "the answers are those of the base model." in lead(outcome(alarm="why", ended_early=True, chosen_step=0))
    at_the_end = outcome(alarm="why", chosen_step=6)
    assert "came to its end with an alarm: why; the answers are those of the model of step 6." in lead(at_the_end)


def test_a_table_for_the_set_and_one_for_each_held_out_one():
    own, heldout = score_tables(outcome(scores=SCORES, heldout=("math500",)))
    assert own.title == "The problems adapted to, 4"
    assert list(own.rows[0]) == ["base model", "25.0%", "50.0%", "10.0% – 90.0%", "–", "75.0%", "64", "12.5%"]
    assert heldout.title == "Held out: math500 (damage shows here), 4"
    assert [row[2] for row in heldout.rows] == ["50.0%", "40.0%"]


def test_last_and_best_are_both_reported():
    collapse = Collapse(12, Signal.VOTES, 20)
    cells = {
        row[0]: row[1] for row in run_table(outcome(unwatched=("the KL to the base model",), collapse=collapse)).rows
    }
    assert cells["last good model"] == "step 10: train/model"
    assert cells["best by signals without gold"] == "step 8: train/checkpoints/global_step8_hf"
    assert cells["Model Collapse Step"] == "12 (by votes, without gold, 20 measurements)"
    assert cells["signals not logged, so not watched"] == "the KL to the base model"


def test_an_outcome_is_read_as_it_was_written(tmp_path):
    made = outcome(scores=SCORES, collapse=Collapse(12, Signal.VOTES, 20))
    made.write(tmp_path / "result.json")
    assert Outcome.model_validate_json((tmp_path / "result.json").read_text()) == made
