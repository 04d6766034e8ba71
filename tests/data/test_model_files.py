"""A model must be whole before anything is started with it; a broken download is told."""

import json

import numpy as np
import pytest

from restrain_openrlhf.data.identity import ensure_model, refuse_incomplete
from restrain_openrlhf.errors import ConfigError


def safetensors(values: int) -> bytes:
    """A file with one tensor of float32, in the format's own layout: length of the head, head, data."""
    data = np.arange(values, dtype="<f4").tobytes()
    head = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, len(data)]}}).encode()
    return len(head).to_bytes(8, "little") + head + data


@pytest.mark.parametrize("cut", [1, 32, len(safetensors(8)) - 4])
def test_a_file_that_was_cut_short_is_named(tmp_path, cut):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors(8)[:-cut])
    with pytest.raises(ConfigError, match=r"1 of 1 weight files are missing or cut short \(model.safetensors\)"):
        refuse_incomplete(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors(8))
    ensure_model(str(tmp_path))


def test_a_shard_that_the_index_names_and_that_is_not_there(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "m-1.safetensors").write_bytes(safetensors(2))
    with pytest.raises(ConfigError, match=r"1 of 2 weight files .*\(m-2.safetensors\)"):
        refuse_incomplete(tmp_path)


def test_folders_that_hold_no_model(tmp_path):
    for name in (str(tmp_path / "absent"), "./absent", "no/hub/id"):
        with pytest.raises(ConfigError, match="no such model folder"):
            ensure_model(name)
    with pytest.raises(ConfigError, match="holds no config"):
        refuse_incomplete(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no weights"):
        refuse_incomplete(tmp_path)


def test_a_download_that_fails_is_told_and_can_go_on(monkeypatch):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: make install")

    def broken(*_, **__):
        raise ConnectionError("the line is down")

    monkeypatch.setattr(hub, "snapshot_download", broken)
    with pytest.raises(ConfigError, match=r"own/model: could not be downloaded.*the line is down.*files are kept"):
        ensure_model("own/model")
