"""A model is known by all of its files' contents; what was read once is not read again until it changes."""

import json
import os
import struct
import subprocess

import pytest

from restrain_openrlhf.data import identity
from restrain_openrlhf.data.identity import model_digests, model_fingerprint

TENSORS, ELEMENTS = 38, 60_000  # 240 kB each, 9 MB in all: far more than the first and last MiB
MIDDLE = range(7, 31)  # 24 tensors that lie in neither


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "tokenizer.json").write_text("{}")
    write_weights(folder / "model.safetensors")
    return folder


def write_weights(path, changed=()):
    """The safetensors format by hand: the head's length, the head, the tensors. Changed ones are of other values."""
    size = 4 * ELEMENTS
    head = {
        f"layer.{at:02}.weight": {"dtype": "F32", "shape": [ELEMENTS], "data_offsets": [at * size, (at + 1) * size]}
        for at in range(TENSORS)
    }
    text = json.dumps(head).encode()
    tensors = (struct.pack("<f", 2.0 if at in changed else 1.0) * ELEMENTS for at in range(TENSORS))
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors))


def sha256sum(path):
    return subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]


def test_a_model_with_middle_tensors_changed_is_another_model(model):
    before = model_fingerprint(str(model))
    write_weights(model / "model.safetensors", changed=MIDDLE)
    assert model_fingerprint(str(model)) != before
    write_weights(model / "model.safetensors")
    assert model_fingerprint(str(model)) == before


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "generation_config.json", "modeling_own.py"])
def test_what_else_changes_a_response_is_part_of_the_model(model, name):
    before = model_fingerprint(str(model))
    (model / name).write_text("changed")
    assert model_fingerprint(str(model)) != before


def test_what_changes_no_response_is_not(model):
    before = model_fingerprint(str(model))
    for name in ("README.md", "trainer_state.json", "LICENSE.txt"):
        (model / name).write_text("anything")
    assert model_fingerprint(str(model)) == before


def test_each_files_digest_is_that_of_sha256sum(model):
    found = model_digests(model)
    assert found == {name: sha256sum(model / name) for name in ("config.json", "model.safetensors", "tokenizer.json")}


def test_a_process_reads_a_file_once(model, monkeypatch):
    weights = model / "model.safetensors"
    first = identity.file_digest(weights)
    monkeypatch.setattr(identity.hashlib, "file_digest", lambda *_: pytest.fail("it was read again"))
    assert identity.file_digest(weights) == first == sha256sum(weights)


def test_a_change_that_keeps_size_and_time_is_seen(model):
    """As `rsync --inplace --times` leaves it: the same path, size, inode and time of modification."""
    weights = model / "model.safetensors"
    identity.file_digest(weights)
    before = weights.stat()
    with weights.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(b"other")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns, weights.stat().st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert identity.file_digest(weights) == sha256sum(weights)
