"""Kept rollouts in the hook: what a step's groups become, which are kept, and that they never end training."""

import logging
import math

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack (make install)")

import torch
from hypothesis import given
from hypothesis import strategies as st

from restrain_openrlhf.config.yaml_file import KeepRollouts
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.hook.policy.experience import LAST_STEP
from restrain_openrlhf.hook.rollout.group_columns import ScoredGroup
from restrain_openrlhf.hook.run_log import KEPT_GROUPS, KEPT_MIB, Keeping, chosen
from restrain_openrlhf.method import build, parse_settings
from restrain_openrlhf.records.kept import kept_files, read_kept, step_file
from restrain_openrlhf.scoring import GroupScorer, score_whole_group
from restrain_openrlhf.scoring.wire import NEGATIVE, POSITIVE, GroupRequest
from tests.e2e.conftest import small_disk
from tests.hook.in_process import HALF, LENGTHS, Models, column, drawn_by_the_host, host_arguments, maker_of
from tests.hook.test_methods_in_the_host import CASES, GOLD, LOW_U, PROMPTS, TOTAL, N, U, V, W
from tests.reference.made import write_reference


def step_of(case, hooked, tmp_path, keep="all", models=None):
    """The host's own classes make a step of the case; its maker, and its experiences."""
    answers = dict(zip(PROMPTS, case.reference, strict=True)) if case.reference else None
    reference = write_reference(tmp_path / "ref.jsonl", answers, **LENGTHS) if answers else None
    hooked(case.method, reference=reference, metrics=tmp_path / "metrics.jsonl", rollouts=KeepRollouts(keep=keep))
    arguments = host_arguments(len(PROMPTS), N)
    maker = maker_of(arguments, models)
    samples = drawn_by_the_host({PROMPTS[0]: case.first, PROMPTS[1]: case.second}, GOLD, arguments)
    return maker, maker.make_experience_batch(samples)


def kept_of(maker, tmp_path, keep="all"):
    Keeping(tmp_path, KeepRollouts(keep=keep), seed=42).keep(1, LAST_STEP[maker].scored, LAST_STEP[maker].rollout_gaps)
    return list(read_kept(tmp_path))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_kept_is_what_is_trained_on(case, hooked, tmp_path):
    maker, experiences = step_of(case, hooked, tmp_path)
    groups = kept_of(maker, tmp_path)
    assert [(group.prompt, group.prompt_id) for group in groups] == [(text, text_hash(text)) for text in PROMPTS]
    trained = [rollout for group in groups for rollout in group.rollouts if rollout.trained]
    assert [rollout.advantage_pos for rollout in trained] == pytest.approx(case.positive, rel=1e-4)
    assert [rollout.advantage_neg for rollout in trained] == pytest.approx(case.negative, rel=1e-4)
    assert [rollout.log_prob_gap for rollout in trained] == [0.0] * 2 * N
    assert [rollout.response + "~" * (not rollout.finished) for rollout in groups[0].rollouts] == case.first
    assert all(isinstance(label, str) for experience in experiences for label in experience.labels)


def test_a_group_of_restrain_worked_by_hand(hooked, tmp_path):
    maker, _ = step_of(CASES["restrain"], hooked, tmp_path)
    first, second = kept_of(maker, tmp_path)
    assert [rollout.answer for rollout in first.rollouts] == ["2", "2", "3", None]
    assert [rollout.label for rollout in first.rollouts] == [0, 0, 1, None]
    assert [rollout.class_votes for rollout in first.rollouts] == [2, 2, 1, None]
    assert [rollout.label_weight for rollout in first.rollouts] == pytest.approx([W, W, V, None])
    assert pytest.approx(1) == W + V == (math.exp(-0.5) + math.exp(-1.125)) / TOTAL
    assert (first.majority_count, first.voters, first.penalized) == (2, 4, False)
    assert (second.majority_count, second.voters, second.penalized) == (1, 4, True)
    assert (first.prompt_weight, second.prompt_weight) == pytest.approx((U, LOW_U))


@pytest.mark.parametrize("name", ["restrain", "ttrl, votes", "ettrl"])
def test_training_is_the_same_where_nothing_is_kept(name, hooked, tmp_path):
    case = CASES[name]
    maker, without = step_of(case, hooked, tmp_path, keep="none")
    assert LAST_STEP[maker].scored == []
    assert LAST_STEP[maker].rollout_gaps == []
    _, kept = step_of(case, hooked, tmp_path)
    for number in (POSITIVE, NEGATIVE, "reward"):
        assert column(without, number) == column(kept, number)
    assert [experience.labels for experience in without] == [experience.labels for experience in kept]


def test_every_rollout_has_its_own_gap_whatever_the_micro_batches(hooked, tmp_path):
    """vLLM writes each digit with probability .5, the policy with .8: one token of ten is apart, none of the fourth."""

    class Other(Models):
        @staticmethod
        def _log_probs(sequences):
            return Models._log_probs(sequences) * math.log(0.8) / HALF

    hooked({"name": "ttrl"}, logprob_gap_limit=None, metrics=tmp_path / "metrics.jsonl")
    maker = maker_of(host_arguments(1, 4), Other())
    script = {"1+1=": [r"\boxed{1}", r"\boxed{2}", r"\boxed{2}!!!!!", "none"]}
    maker.make_experience_batch(drawn_by_the_host(script, [""], host_arguments(1, 4)))
    apart = math.log(0.8) - math.log(0.5)
    assert LAST_STEP[maker].rollout_gaps == pytest.approx([apart / 10, apart / 10, apart / 15, 0], rel=1e-5)


def test_many_missing_answers_are_warned_of_once_a_run_with_what_was_not_read(hooked, tmp_path, caplog):
    hooked({"name": "ttrl"}, metrics=tmp_path / "metrics.jsonl")
    maker = maker_of(host_arguments(1, 4))
    script = {"1+1=": [r"\boxed{1}", r"\boxed{1}", "SELECT a FROM t WHERE x = 5", "none"]}
    for _ in range(2):
        maker.make_experience_batch(drawn_by_the_host(script, [""], host_arguments(1, 4)))
    (said,) = [each.getMessage() for each in caplog.records if "do not vote" in each.getMessage()]
    assert said.startswith("50.0% of this step's rollouts have no answer")
    assert "'SELECT a FROM t WHERE x = 5'; 'none'" in said


def scored(prompt="1+1=", *texts):
    scorer = GroupScorer(build(parse_settings({"name": "ttrl"})))
    request = GroupRequest(
        prompt=prompt, responses=[{"text": text, "finished": True} for text in texts or ("a", r"\boxed{2}")]
    )
    return ScoredGroup(request, score_whole_group(scorer, request))


def long_text(seed, letters):
    """Text that zstd cannot make much smaller."""
    generator = torch.Generator().manual_seed(seed)
    return "".join(map(chr, torch.randint(33, 1000, (letters,), generator=generator).tolist()))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9), st.integers(1, 9))
def test_a_choice_is_of_so_many_places_and_the_same_again(count, groups, seed, step):
    count = min(count, groups)
    places = chosen(count, groups, seed, step)
    assert places == chosen(count, groups, seed, step) == sorted(set(places))
    assert len(places) == count
    assert set(places) <= set(range(groups))


def test_a_sample_of_the_groups_with_their_places(tmp_path):
    groups = [scored(f"{place}+1=") for place in range(8)]
    gaps = [float(place) for place in range(16)]
    logged = Keeping(tmp_path, KeepRollouts(keep=3), seed=7).keep(5, groups, gaps)
    kept = list(read_kept(tmp_path))
    assert [group.group for group in kept] == chosen(3, 8, seed=7, step=5)
    assert all(group.prompt == f"{group.group}+1=" for group in kept)
    assert all(
        [rollout.log_prob_gap for rollout in group.rollouts] == [2 * group.group, 2 * group.group + 1] for group in kept
    )
    assert logged == {KEPT_GROUPS: 3, KEPT_MIB: step_file(tmp_path, 5).stat().st_size / 2**20}


def test_keeping_stops_at_its_bound_and_says_so(tmp_path, caplog):
    """Each step has about 0.6 MiB of text that does not compress."""
    keeping = Keeping(tmp_path, KeepRollouts(keep="all", at_most_mib=1), seed=1)
    step = [scored("x", long_text(seed, 400_000)) for seed in range(1)]
    with caplog.at_level(logging.WARNING):
        logged = [
            keeping.keep(number, groups, [0.0]) for number, groups in ((1, step), (2, step), (3, [scored("x", "a")]))
        ]
    assert [row[KEPT_GROUPS] for row in logged] == [1, 0, 0]
    ((first, file),) = kept_files(tmp_path).items()
    assert [row[KEPT_MIB] for row in logged] == [file.stat().st_size / 2**20] * 3
    assert first == 1, "a later and smaller step would be a biased sample"
    (record,) = caplog.records
    assert "From step 2 on no rollouts are kept: they would take more than rollouts.at_most_mib = 1." in record.message
    again = Keeping(tmp_path, KeepRollouts(keep="all", at_most_mib=None), seed=1)
    assert again.keep(4, step, [0.0])[KEPT_GROUPS] == 1


def test_a_full_disk_ends_keeping_and_not_training(tmp_path, caplog):
    with small_disk(tmp_path / "disk", 1) as disk:
        keeping = Keeping(disk, KeepRollouts(keep="all"), seed=1)
        keeping.keep(1, [scored("x", "a")], [0.0])
        logged = keeping.keep(2, [scored("x", long_text(1, 1_500_000))], [0.0])
        assert logged[KEPT_GROUPS] == 0
        assert [path.name for path in (disk / "rollouts").iterdir()] == ["step-000001.parquet"]
        assert len(list(read_kept(disk))) == 1
    assert "From step 2 on no rollouts are kept: " in caplog.text
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize(("keep", "left"), [("all", [1, 2, 3]), ("none", [1, 2])])
def test_a_resumed_run_has_no_files_of_steps_it_does_again(tmp_path, keep, left):
    before = Keeping(tmp_path, KeepRollouts(), seed=1)
    for step in (1, 2, 3, 4):
        before.keep(step, [scored("before")], [0.0, 0.0])
    (tmp_path / "rollouts" / "step-000005.parquet.partial").write_bytes(b"half")
    groups = [scored("again")] if keep == "all" else []
    Keeping(tmp_path, KeepRollouts(keep=keep), seed=1).keep(3, groups, [0.0] * 2 * len(groups))
    assert list(kept_files(tmp_path)) == left
    assert sorted(path.suffix for path in (tmp_path / "rollouts").iterdir()) == [".parquet"] * len(left)
    assert [group.prompt for group in read_kept(tmp_path)] == ["before", "before", "again"][: len(left)]
