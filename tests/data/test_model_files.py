"""A model must be whole before anything is started with it; an interrupted download goes on where it broke off."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from restrain_openrlhf.data.identity import ensure_model, refuse_adapter, refuse_incomplete
from restrain_openrlhf.errors import ConfigError

COMMIT = "a" * 40
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def safetensors(values: int) -> bytes:
    """A file with one tensor of float32, in the format's own layout: length of the head, head, data."""
    data = np.arange(values, dtype="<f4").tobytes()
    head = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, len(data)]}}).encode()
    return len(head).to_bytes(8, "little") + head + data


def test_a_whole_folder_is_taken(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors(8))
    refuse_incomplete(tmp_path)
    ensure_model(str(tmp_path))


def test_an_adapter_is_not_taken_for_a_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds a LoRA adapter, but a full model is needed"):
        refuse_adapter(tmp_path)


@pytest.mark.parametrize("cut", [1, 32, len(safetensors(8)) - 4])
def test_a_file_that_was_cut_short_is_named(tmp_path, cut):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors(8)[:-cut])
    with pytest.raises(ConfigError, match=r"1 of 1 weight files are incomplete \(cut short: model.safetensors\)"):
        refuse_incomplete(tmp_path)


def test_a_shard_that_the_index_names_and_that_is_not_there(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "m-1.safetensors").write_bytes(safetensors(2))
    with pytest.raises(ConfigError, match=r"1 of 2 weight files .*missing: m-2.safetensors"):
        refuse_incomplete(tmp_path)


def test_folders_that_hold_no_model(tmp_path):
    with pytest.raises(ConfigError, match="no such model folder"):
        ensure_model(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="holds no config"):
        refuse_incomplete(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no weights"):
        refuse_incomplete(tmp_path)


@dataclass
class Hub:
    """A hub with one model, which breaks the connection in the middle of the second shard while `is_broken`."""

    files: dict[str, bytes]
    is_broken: bool = True
    sent: list[str] = field(default_factory=list)


def handler_of(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self._answer(with_body=False)

        def do_GET(self):
            self._answer(with_body=True)

        def log_message(self, *_):
            pass

        def _answer(self, with_body):
            name = self.path.rsplit("/", 1)[-1].partition("?")[0]
            if name in hub.files:
                self._file(name, with_body)
            elif "/tree/" in self.path:
                self._json(
                    [{"type": "file", "path": name, "size": len(hub.files[name]), "oid": name} for name in hub.files]
                )
            elif "/api/models/" in self.path:
                files = [{"rfilename": name} for name in hub.files]
                self._json({"id": "own/model", "sha": COMMIT, "siblings": files})
            else:
                self._head(404, 0)

        def _json(self, content):
            body = json.dumps(content).encode()
            self._head(200, len(body))
            self.wfile.write(body)

        def _file(self, name, with_body):
            content = hub.files[name]
            start = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
            self._head(206 if start else 200, len(content) - start, f'"{name}"')
            if not with_body:
                return
            hub.sent.append(name)
            if hub.is_broken and name == SECOND:
                self.wfile.write(content[start : len(content) // 2])
                self.wfile.flush()
                self.connection.close()
            else:
                self.wfile.write(content[start:])

        def _head(self, status, length, etag='"x"'):
            self.send_response(status)
            for header, value in (("Content-Length", length), ("ETag", etag), ("X-Repo-Commit", COMMIT)):
                self.send_header(header, str(value))
            self.end_headers()

    return Handler


@pytest.fixture
def hub() -> Iterator[tuple[Hub, str]]:
    index = json.dumps({"weight_map": {"a": FIRST, "b": SECOND}}).encode()
    weights = {FIRST: safetensors(10), SECOND: safetensors(100_000)}
    made = Hub({"config.json": b"{}", "model.safetensors.index.json": index, **weights})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_an_interrupted_download_is_told_and_goes_on(hub, tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: make install")
    made, address = hub

    def fetch():
        script = (
            "from restrain_openrlhf.data.identity import ensure_model\n"
            "from restrain_openrlhf.errors import RestrainError\n"
            "try:\n    ensure_model('own/model')\n"
            "except RestrainError as error:\n    raise SystemExit(f'error: {error}')\n"
        )
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    broken = fetch()
    assert broken.returncode == 1
    assert "error: own/model: could not be downloaded" in broken.stderr
    assert "complete files are kept" in broken.stderr
    made.is_broken = False
    made.sent.clear()
    whole = fetch()
    assert whole.returncode == 0, whole.stderr
    assert made.sent == [SECOND], "the files that were whole are kept"
    (weights,) = tmp_path.rglob(f"snapshots/*/{SECOND}")
    assert weights.read_bytes() == made.files[SECOND]
