"""A model is known by all of its files' contents; what was read once is not read again until it changes."""

import os
import struct
import subprocess

import pytest

from restrain_openrlhf.data import identity
from restrain_openrlhf.data.identity import model_digests, model_fingerprint


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "tokenizer.json").write_text("{}")
    # 9 MB of tensors, by the safetensors format: the head's length, the head, the tensors.
    head = b'{"w": {"dtype": "F32", "shape": [2250000], "data_offsets": [0, 9000000]}}'
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(9_000_000))
    return folder


def sha256sum(path):
    return subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "generation_config.json", "modeling_own.py"])
def test_what_else_changes_a_response_is_part_of_the_model(model, name):
    before = model_fingerprint(str(model))
    (model / name).write_text("changed")
    assert model_fingerprint(str(model)) != before


def test_each_files_digest_is_that_of_sha256sum(model):
    """Of the files that change a response, and of no others."""
    (model / "README.md").write_text("anything")
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
