"""Full disks and damaged files of a run: errors name the file, and nothing half written is taken as whole."""

import errno
from contextlib import suppress

import pytest

from restrain_openrlhf.errors import RunError
from restrain_openrlhf.records.folder import Completion, RunFolder
from restrain_openrlhf.records.metrics import append_row, read_steps
from tests.e2e.conftest import small_disk


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 1) as found:
        yield found


def fill(disk):
    """A file that takes all the space that is left."""
    taken = disk / "taken"
    with suppress(OSError):
        taken.write_bytes(bytes(2 << 20))
    return taken


def full(error, path):
    return error.value.errno == errno.ENOSPC and error.value.filename == str(path)


def test_a_run_is_marked_as_completed_or_not_at_all(disk):
    folder, taken = RunFolder(disk), fill(disk)
    with pytest.raises(OSError, match="No space left") as error:
        folder.mark_completed(Completion(steps=3))
    assert full(error, folder.completed)
    assert folder.completion() is None
    taken.unlink()
    folder.mark_completed(Completion(steps=3))
    assert folder.completion() == Completion(steps=3)
    assert [path.name for path in disk.iterdir()] == ["completed.json"]


def test_a_steps_row_that_was_cut_off_is_written_again(disk):
    """A file takes whole pages: the last one of the rows so far has space for the beginning of the next row."""
    path, row = disk / "metrics.jsonl", {"votes": {}, "restrain/kl": 0.5}
    append_row(path, 1, row)
    taken = fill(disk)
    with pytest.raises(RunError, match=rf"^{path}: the row of step 2 .*No space left on device.* Free some space"):
        append_row(path, 2, {**row, "more": "x" * 20_000})
    assert not path.read_bytes().endswith(b"\n"), "the row is cut off, as the test needs it"
    assert [each.step for each in read_steps(path)] == [1]
    taken.unlink()
    append_row(path, 2, row)
    assert [each.step for each in read_steps(path)] == [1, 2]


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_a_damaged_mark_of_completion_is_told_with_what_to_do(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.completed.write_bytes(content)
    with pytest.raises(RunError, match=r"completed\.json: is damaged\. Remove it, and run"):
        folder.completion()
