"""The offline pass without an engine: votes, resuming, sharding, merging, and what is refused."""

import fcntl
import json
from functools import partial
from types import SimpleNamespace

import pytest

from restrain_openrlhf.answers import MATHEMATICS
from restrain_openrlhf.commands.train import run_pass as run_to_the_end
from restrain_openrlhf.data.identity import text_hash
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import DataError, ReferencePassError, RunError
from restrain_openrlhf.reference import ReferenceProvenance, ReferenceRow, load_reference
from restrain_openrlhf.reference.artifact import NeededReference, refuse_mismatch
from restrain_openrlhf.reference.offline_engine import Rollout, Sampling, prompt_seed, refuse_long_prompts
from restrain_openrlhf.reference.offline_pass import merge, subset
from restrain_openrlhf.reference.sampling_pass import PROMPTS_PER_CHUNK, SamplingPass, Shard
from tests.e2e.conftest import small_disk
from tests.reference.toy import look_up, prompts, provenance


class Engine:
    """Answers by rule, counts the prompts it saw, and can be killed after some chunks."""

    def __init__(self, chunks_until_kill=None):
        self.seen, self.chunks = [], chunks_until_kill

    def rollouts(self, chunk):
        if self.chunks is not None:
            if self.chunks == 0:
                raise KeyboardInterrupt
            self.chunks -= 1
        self.seen += [prompt.id for prompt in chunk]
        return [[rollout(str(prompt.id)), rollout(str(prompt.id)), rollout("x"), CUT] for prompt in chunk]


def rollout(answer, truncated=False):
    return Rollout(rf"so \boxed{{{answer}}}", tokens=5, truncated=truncated)


# It has an answer, and is a missing one all the same.
CUT = rollout("1", truncated=True)


def run_pass(everything, made, path, engine, on_progress=lambda _count: None):
    SamplingPass(everything, made, path, ReferenceRow, partial(ReferenceRow.of, MATHEMATICS)).run(engine, on_progress)


def test_a_row_is_the_vote_of_its_rollouts():
    row = ReferenceRow.of_answers(prompts(1)[0], ["7", "07", "3", None, "7.0", "3"])
    assert (row.counts, row.majority, row.majority_count, row.majority_share) == ((3, 2), "7", 3, 0.5)
    assert row.missing_share == pytest.approx(1 / 6)
    empty = ReferenceRow.of_answers(prompts(1)[0], [None, None])
    assert (empty.counts, empty.majority, empty.majority_count) == ((), None, 0)


def test_a_killed_pass_goes_on_and_samples_nothing_twice(tmp_path):
    everything, path = prompts(3 * PROMPTS_PER_CHUNK), tmp_path / "ref.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_pass(everything, provenance(everything), path, lambda: Engine(chunks_until_kill=1))
    with pytest.raises(ReferencePassError, match="Run the same"):
        load_reference(path)
    with path.open("a") as file:
        file.write('{"id": 99, "prompt_ha')
    second, progress = Engine(), []
    run_pass(everything, provenance(everything), path, lambda: second, progress.append)
    assert second.seen == list(range(PROMPTS_PER_CHUNK, 3 * PROMPTS_PER_CHUNK))
    assert sum(progress) == len(everything)
    assert [row.id for row in load_reference(path).rows] == list(range(len(everything)))
    run_pass(everything, provenance(everything), path, lambda: pytest.fail("a whole pass must start no engine"))


def test_a_pass_on_a_full_disk_keeps_what_it_has_and_goes_on_with_more_space(tmp_path):
    everything = prompts(3 * PROMPTS_PER_CHUNK)
    with small_disk(tmp_path / "disk", 1) as disk:
        path, taken, rows = disk / "ref.jsonl", disk / "taken", []
        taken.write_bytes(bytes((1 << 20) - (40 << 10)))
        with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
            run_pass(everything, provenance(everything), path, Engine, rows.append)
        assert rows == [0, PROMPTS_PER_CHUNK], "it was full in the second chunk, as the test needs it"
        taken.unlink()
        second = Engine()
        run_pass(everything, provenance(everything), path, lambda: second)
        assert [row.id for row in load_reference(path).rows] == list(range(len(everything)))
        assert min(second.seen) >= PROMPTS_PER_CHUNK, "the first chunk was not sampled again"


def test_another_pass_is_not_mixed_in(tmp_path):
    everything, path = prompts(2), tmp_path / "ref.jsonl"
    run_pass(everything, provenance(everything), path, Engine)
    with pytest.raises(ReferencePassError, match=r"temperature: 1\.0 against 0\.6"):
        run_pass(everything, provenance(everything, temperature=0.6), path, Engine)


def test_two_processes_do_not_write_one_artifact(tmp_path):
    everything, path = prompts(2), tmp_path / "ref.jsonl"
    with path.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is writing this file"):
            run_pass(everything, provenance(everything), path, Engine)


def test_shards_together_are_the_whole(tmp_path):
    everything = prompts(10)
    for index in range(3):
        shard = Shard(index, 3)
        run_pass(shard.of(everything), provenance(everything), shard.path(tmp_path / "ref.jsonl"), Engine)
    paths = sorted(tmp_path.glob("*.shard-*-of-3.jsonl"))
    assert merge(paths, tmp_path / "merged.jsonl") == 10
    assert {row.id for row in load_reference(tmp_path / "merged.jsonl").rows} == set(range(10))
    with pytest.raises(DataError, match="of 10 prompts"):
        merge(paths[:2], tmp_path / "half.jsonl")
    with pytest.raises(DataError, match="is there already"):
        merge([paths[0], *paths], tmp_path / "twice.jsonl")


def test_shards_of_two_passes_do_not_merge(tmp_path):
    everything = prompts(4)
    for index, seed in ((0, 1), (1, 2)):
        shard = Shard(index, 2)
        run_pass(shard.of(everything), provenance(everything, seed=seed), shard.path(tmp_path / "ref.jsonl"), Engine)
    with pytest.raises(ReferencePassError, match="seed"):
        merge(sorted(tmp_path.glob("*.jsonl")), tmp_path / "merged.jsonl")


@pytest.mark.parametrize(
    "write", [lambda shard, out: merge([shard], out), lambda whole, out: subset(load_reference(whole), out, 2)]
)
def test_a_kill_between_a_file_and_its_provenance_never_leaves_it_with_anothers(tmp_path, monkeypatch, write):
    """There is a merged file of another seed already, and the process ends once the new rows have taken its place."""
    everything, out = prompts(3), tmp_path / "merged.jsonl"
    for seed in (1, 2):
        run_pass(everything, provenance(everything, seed=seed), tmp_path / f"{seed}.jsonl", Engine)
    merge([tmp_path / "1.jsonl"], out)
    monkeypatch.setattr(ReferenceProvenance, "write", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception, match="killed"):
        write(tmp_path / "2.jsonl", out)
    with pytest.raises(ReferencePassError, match="no such file"):
        load_reference(out)


def test_a_kill_as_a_part_is_completed_in_place_does_not_cost_it_its_provenance(tmp_path, monkeypatch):
    everything, out = prompts(3), tmp_path / "ref.jsonl"
    run_pass(everything, provenance(everything), out, Engine)
    monkeypatch.setattr(ReferenceProvenance, "write", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception, match="killed"):
        merge([out], out)
    assert len(load_reference(out).rows) == 3


@pytest.fixture
def reference(tmp_path):
    everything = prompts(4)
    run_pass(everything, provenance(everything), tmp_path / "ref.jsonl", Engine)
    return load_reference(tmp_path / "ref.jsonl")


def test_training_on_the_same_or_fewer_prompts_is_allowed(reference):
    refuse_mismatch(reference, NeededReference(model_fingerprint="folder:1", template="none"))
    look_up(reference, prompts(3))


@pytest.mark.parametrize(
    ("fingerprint", "template", "count", "message"),
    [
        ("folder:2", "none", 4, "another model"),
        ("folder:1", "chat template 0", 4, "another template"),
        ("folder:1", "none", 5, "another prompt set: it has no row for line 5"),
    ],
)
def test_a_reference_for_something_else_is_refused_naming_the_difference(
    reference, fingerprint, template, count, message
):
    def check():
        refuse_mismatch(reference, NeededReference(model_fingerprint=fingerprint, template=template))
        look_up(reference, prompts(count))

    with pytest.raises(ReferencePassError) as error:
        check()
    assert message in str(error.value)


def test_rows_are_found_by_prompt_and_by_problem(reference):
    assert reference.row("Q 2+1=").id == 2
    assert reference.by_problem("2+1=").id == 2
    assert reference.rows.get(text_hash("2+1=")) is None


def test_provenance_travels_with_the_artifact(tmp_path, reference):
    (tmp_path / "moved.jsonl").write_bytes(reference.path.read_bytes())
    with pytest.raises(ReferencePassError, match="copy both files"):
        load_reference(tmp_path / "moved.jsonl")
    (tmp_path / "moved.jsonl.provenance.json").write_text(json.dumps({"model": "m"}))
    with pytest.raises(ReferencePassError, match="Make it again"):
        load_reference(tmp_path / "moved.jsonl")


def test_prompts_have_seeds_of_their_own_and_are_never_cut():
    one, other = prompts(2)
    sampling = Sampling(max_len=10, max_new_tokens=6)
    assert prompt_seed(1, one) == prompt_seed(1, one) != prompt_seed(1, other)
    refuse_long_prompts([one], lambda text, add_special_tokens: {"input_ids": [1] * 4}, sampling)
    with pytest.raises(DataError, match=r"2 of 2 prompts .* line 1 \(id 0\): 5; line 2 \(id 1\): 5"):
        refuse_long_prompts([one, other], lambda text, add_special_tokens: {"input_ids": [1] * 5}, sampling)


CODE = "Here it is:\n```python\nprint(5)\n```"


@pytest.mark.parametrize(("cut", "warned"), [(0, False), (1, True)])
def test_a_pass_with_many_missing_answers_ends_with_a_warning_and_what_was_not_read(tmp_path, capsys, cut, warned):
    """Two prompts, five rollouts each: two of the second have no answer, and with `cut` a third was cut off."""
    everything = prompts(2)
    groups = [[rollout("1")] * 5, [Rollout(CODE, 5, False)] * 2 + [rollout("1")] * (3 - cut) + [CUT] * cut]
    rows = [ReferenceRow.of(MATHEMATICS, prompt, group) for prompt, group in zip(everything, groups, strict=True)]
    assert [row.unread for row in rows] == [(), ("Here it is: ```python print(5) ```",)]
    made = provenance(everything)

    class Job:
        path = tmp_path / "ref.jsonl"
        shard, options, prompts = Shard(0, 1), SimpleNamespace(tensor_parallel_size=1, out=path), everything
        provenance, read = made, "prompts: 2 from column 'problem'"

        def sampling(self):
            return self

        def run(self, _engine, _on_progress):
            write_rows(self.path, rows)
            self.provenance.write(self.path)

    run_to_the_end(Job())
    said = " ".join(capsys.readouterr().err.split())
    assert ("warning: 30.0% of the pass's rollouts have no answer" in said) is warned
    assert ("'Here it is: ```python print(5) ```'" in said) is warned
