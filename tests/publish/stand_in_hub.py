"""Stands for the hub: repositories, LFS objects and commits over HTTP, as huggingface_hub asks for them."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

TOKEN = "hf_the_token_of_this_test"
LARGE = (".safetensors", ".bin", ".png")


@dataclass
class Hub:
    """What it holds. `held` names the object (by its end) whose upload waits for `release`; `sent` are all uploads."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visibility: dict[str, str | None] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    held: int | None = None
    waiting: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    address: str = ""


@contextmanager
def running() -> Iterator[Hub]:
    """A hub on a free port of this machine, until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, code=None):
        data = json.dumps(body if body is not None else {}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_PUT(self):
        """An LFS object; its address needs no token."""
        data = self.body()
        if self.hub.held == len(data):
            self.hub.waiting.set()
            self.hub.release.wait()
        oid = hashlib.sha256(data).hexdigest()
        self.hub.sent.append(oid)
        assert self.path.endswith(oid)
        self.hub.objects[oid] = data
        self.answer(200)

    def do_HEAD(self):
        self.resolve(with_body=False)

    def resolve(self, with_body):
        """A file of a repository, as it is downloaded."""
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/\w+/(.+)", self.path)
        data = self.hub.repositories.get(found[1], {}).get(found[2]) if found else None
        if data is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def do_GET(self):
        path = self.path.partition("?")[0]
        named = re.match(r"/api/models/([^/]+/[^/]+)", path)
        if "/resolve/" in path:
            self.resolve(with_body=True)
        elif named is None or named[1] not in self.hub.repositories:
            # As the hub, which does not tell a stranger whether it exists.
            self.answer(401, {"error": "Invalid username or password."}, "RepoNotFound")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/\w+", path):
            files = self.hub.repositories[found[1]]
            rows = [{"type": "file", "path": name, "size": len(data), "oid": "0" * 40} for name, data in files.items()]
            self.answer(200, rows)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/main)?", path):
            siblings = [{"rfilename": name} for name in self.hub.repositories[found[1]]]
            self.answer(200, {"id": found[1], "sha": "0" * 40, "siblings": siblings, "tags": [], "private": False})
        else:
            self.answer(404, {"error": self.path})

    def do_POST(self):
        data, path = self.body(), self.path.partition("?")[0]
        authorization = self.headers.get("Authorization")
        self.hub.tokens.add(authorization)
        if path == "/api/validate-yaml":
            self.answer(200, checked_card(json.loads(data)))
        elif authorization != f"Bearer {TOKEN}":
            self.answer(401, {"error": "Invalid credentials in Authorization header"})
        elif path == "/api/repos/create":
            self.create(json.loads(data))
        elif re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            self.answer(200, {"files": [mode(each["path"]) for each in json.loads(data)["files"]]})
        elif re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            self.answer(200, {"transfer": "basic", "objects": list(map(self.upload, json.loads(data)["objects"]))})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self.commit(found[1], [json.loads(line) for line in data.splitlines()])
        else:
            self.answer(404, {"error": self.path})

    def create(self, asked):
        name = f"{asked['organization']}/{asked['name']}"
        known = name in self.hub.repositories
        self.hub.repositories.setdefault(name, {".gitattributes": b""})
        self.hub.visibility.setdefault(name, asked.get("visibility"))
        self.answer(409 if known else 200, {"url": f"{self.hub.address}/{name}"})

    def upload(self, each):
        known = {"oid": each["oid"], "size": each["size"]}
        if each["oid"] in self.hub.objects:
            return known
        return {**known, "actions": {"upload": {"href": f"{self.hub.address}/objects/{each['oid']}"}}}

    def commit(self, name, lines):
        files = dict(self.hub.repositories[name])
        for each in (line["value"] | {"kind": line["key"]} for line in lines):
            if each["kind"] == "header":
                self.hub.messages.append(each["summary"])
            elif each["kind"] == "file":
                files[each["path"]] = base64.b64decode(each["content"])
            elif each["kind"] == "lfsFile":
                files[each["path"]] = self.hub.objects[each["oid"]]
            elif each["kind"] == "deletedFile":
                del files[each["path"]]
        self.hub.repositories[name] = files
        self.answer(200, {"commitUrl": f"{self.hub.address}/{name}/commit/1", "commitOid": "1" * 40})


def mode(path):
    return {"path": path, "uploadMode": "lfs" if path.endswith(LARGE) else "regular", "shouldIgnore": False}


def checked_card(asked):
    """As the hub: front matter that is no mapping, or a base model that is no id, is an error."""
    front = yaml.safe_load(asked["content"].split("---")[1])
    wrong = not isinstance(front, dict) or front.get("base_model", "a/b").count("/") != 1
    return {"errors": [{"message": "front matter"}] if wrong else [], "warnings": []}
