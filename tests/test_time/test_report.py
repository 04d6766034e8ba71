"""The sentences and tables of an adaptation: accuracies beside the base model's large vote, how the run ended."""

from test_time.outcome import Outcome
from test_time.report import comparison_table, lead, run_table, score_tables
from tests.test_time.outcomes import comparison, outcome, score

SCORES = (
    score(),
    score("adapted model", pass_at_1=0.6, majority=0.7, n=16),
    score(benchmark="math500"),
    score("adapted model", benchmark="math500", pass_at_1=0.4, n=16),
)


def test_the_lead_without_gold_says_what_changed():
    assert lead(outcome()) == (
        "4 answers, 1 of them changed by the adaptation. Each is the majority of 16 rollouts at T 0.6, top-p 0.95, "
        "as in evaluations."
    )


def test_the_lead_with_gold_has_the_answers_accuracy_beside_the_base_models():
    said = (
        "Right: 75.0% (3 of 4). The base model alone: 25.0% with greedy answers, 50.0% (2 of 4) with such majorities."
    )
    assert lead(outcome(scores=SCORES, comparison=comparison())).endswith(said)
    below = lead(outcome(comparison=comparison(greedy_before=1.0)))
    assert below.endswith("with such majorities. The base model is better: use it without the adaptation.")
    equal = lead(outcome(comparison=comparison(greedy_before=0.75)))
    assert equal.endswith(
        "75.0% with greedy answers, 50.0% (2 of 4) with such majorities. The adaptation gained nothing."
    )


def test_the_first_table_is_of_the_answers_handed_back():
    (table,) = comparison_table(outcome(comparison=comparison()))
    assert table.title == "The answers handed back, votes of 16"
    assert [list(row) for row in table.rows] == [
        ["right", "75.0% (3 of 4)", ""],
        ["right in the base model's vote", "50.0% (2 of 4)", ""],
        ["right of the base model's greedy answers", "25.0%", ""],
        ["newly solved", "1", "c"],
        ["kept", "2", ""],
        ["lost", "0", ""],
    ]


def test_the_lead_says_whose_answers_stand_after_an_alarm():
    early = outcome(alarm="why", ended_early=True, chosen_step=6)
    assert "A stop rule ended training early: why; the answers are those of the model of step 6." in lead(early)
    assert "the answers are those of the base model." in lead(outcome(alarm="why", ended_early=True, chosen_step=0))
    at_the_end = outcome(alarm="why", chosen_step=6)
    assert "A stop rule fired in the last steps: why; the answers are those of the model of step 6." in lead(at_the_end)


def test_a_table_for_the_set_and_one_for_each_held_out_one():
    own, heldout = score_tables(outcome(scores=SCORES, heldout=("math500",)))
    assert own.title == "The problems adapted to, 4"
    assert list(own.rows[0]) == ["base model", "25.0%", "50.0%", "10.0% – 90.0%", "–", "75.0%", "64", "12.5%"]
    assert heldout.title == "Held out: math500 (damage shows here), 4"
    assert [row[2] for row in heldout.rows] == ["50.0%", "40.0%"]


def test_the_run_and_the_model_that_was_chosen_are_reported():
    cells = {row[0]: row[1] for row in run_table(outcome(unwatched=("the KL to the base model",))).rows}
    assert cells["last good model"] == "step 10: train/model"
    assert cells["votes that give answers"].startswith(
        "16 rollouts per problem at T 0.6, top-p 0.95, as in evaluations"
    )
    assert cells["signals not logged, so not watched"] == "the KL to the base model"


def test_an_outcome_is_read_as_it_was_written():
    made = outcome(scores=SCORES)
    assert Outcome.model_validate_json(made.model_dump_json()) == made
