"""A stand-in for a cluster's API server and controllers, which the real kubectl talks to over HTTP.

What it does is what Kubernetes' pages say of each part, in the servers' own words. The controllers go one round (or
several, `rounds_at_a_look`) whenever somebody reads a job, and the clock is put on by `hours` at each. It runs no
containers: a test says how they end and what they print.
"""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.commands.k8s.stand_in import jobs, pods
from tests.commands.k8s.stand_in.store import KINDS, Object, RefusedError, Store, labels_of, merge, plural

RESOURCE = re.compile(r"/apis?/(v1|[^/]+/[^/]+?)(?:/namespaces/([^/]+))?/([a-z0-9]+)(?:/([^/]+))?(/log)?")
NAMESPACES = re.compile(r"/api/(v1)()/(namespaces)(?:/([^/]+))?()")
MISSING = "the server could not find the requested resource"
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class StandIn(Store):
    """A cluster."""

    def round(self) -> None:
        """Each controller looks once at each of its objects."""
        self.rounds += 1
        self.clock += self.hours * 3600
        self.events.get(self.rounds, lambda _: None)(self)
        for claim in self.of("PersistentVolumeClaim"):
            pods.provision(self, claim)
        pods.clear_lost_nodes(self)
        jobs.queue(self)
        for each in self.of("RayJob"):
            jobs.advance_ray_job(self, each)
        for each in self.of("Job"):
            jobs.advance_job(self, each)
        for each in self.of("Pod"):
            pods.advance(self, each)

    def create(self, new: Object) -> Object:
        if new["kind"] == "Pod" and "status" not in new:
            return pods.admit(self, new)
        made = super().create(new)
        if jobs.is_queued(self, made):
            # Kueue's webhook.
            made["spec"]["suspend"] = True
        return made

    def serve(self, folder: Path) -> Path:
        """Starts it and writes a kubeconfig, whose path is returned."""
        handler = type("Handler", (_Handler,), {"cluster": self, "lock": threading.RLock()})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_address[1]}"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": where}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}], "users": [{"name": "x", "user": {}}],
        }  # fmt: skip
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def kinds(self, api: str | None = None) -> Iterator[tuple[str, str, bool]]:
        """Group and version, kind, and whether it is in a namespace, of what this server has."""
        for group, names in KINDS.items():
            if group.partition("/")[0] not in self.without and api in (None, group):
                yield from ((group, name.rstrip("-"), not name.endswith("-")) for name in names.split())

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, content: str) -> Any:
        """What the server sends for a request. Raises RefusedError."""
        if self.down:
            raise RefusedError(503, "the server is currently unable to handle the request")
        if path.startswith(("/version", "/openapi")) or re.fullmatch(r"/api(/v1)?|/apis(/[^/]+/[^/]+)?", path):
            return self._described(path)
        named = NAMESPACES.fullmatch(path) or RESOURCE.fullmatch(path)
        api, namespace, kinds, name, log = named.groups() if named else [""] * 5
        kind = next((each for _, each, _ in self.kinds(api) if plural(each) == kinds), None)
        if kind is None:
            raise RefusedError(404, MISSING)
        for _ in range(self.rounds_at_a_look if method == "GET" and kind in ("Job", "RayJob") else 0):
            self.round()
        if method == "POST" or (method == "PATCH" and "apply-patch" in content):
            return self.create(body) if method == "POST" else self.apply(body)
        if name is None:
            return self._list(kind, namespace, query)
        return self._one(method, (kind, namespace or "", name), body, int(query.get("tailLines", 10**5)) if log else 0)

    def _described(self, path: str) -> Object:
        """The version, and which kinds there are."""
        if path == "/version":
            return {"major": "1", "minor": self.version.partition(".")[2], "gitVersion": f"v{self.version}.0"}
        if path.startswith("/openapi"):
            return self._openapi(path)
        return self._groups(path) if path in ("/api", "/apis") else self._resources(path.split("/", 2)[2])

    def _one(self, method: str, key: tuple[str, str, str], body: Any, lines: int) -> Any:
        """Read, change or delete an object, or read the last lines of a pod's output."""
        each = self.objects.get(key)
        if each is None:
            raise RefusedError(404, f'{plural(key[0])} "{key[2]}" not found')
        if method == "PATCH":
            merge(each, body, {})
        if method == "DELETE":
            self.drop(key[0], key[2])
        return self._output(each, lines) if lines else each

    def _output(self, pod: Object, lines: int) -> str:
        if pod["status"]["phase"] == "Pending":
            name = pod["metadata"]["name"]
            raise RefusedError(400, f'container "main" in pod "{name}" is waiting to start: ContainerCreating')
        text = self.prints.get(labels_of(pod)["app.kubernetes.io/component"], "").format(index=pod.get("_index", 0))
        return "".join(text.splitlines(keepends=True)[-lines:])

    def _list(self, kind: str, namespace: str | None, query: dict[str, str]) -> Object:
        found = [each for each in self.of(kind) if namespace in (None, each["metadata"].get("namespace"))]
        for part in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = part.partition("=")
            found = [each for each in found if labels_of(each).get(key) == value]
        for part in filter(None, query.get("fieldSelector", "").split(",")):
            key, _, value = part.partition("=")
            places = {"status.phase": lambda each: each["status"]["phase"], "metadata.name": _name_of}
            found = [each for each in found if places[key](each) == value]
        api = next(group for group, each, _ in self.kinds() if each == kind)
        return {"kind": f"{kind}List", "apiVersion": api, "metadata": {"resourceVersion": "1"}, "items": found}

    def _groups(self, path: str) -> Object:
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        apis = sorted({api for api, *_ in self.kinds()} - {"v1"})
        versions = [{"groupVersion": api, "version": api.partition("/")[2]} for api in apis]
        groups = [
            {"name": each["groupVersion"].partition("/")[0], "versions": [each], "preferredVersion": each}
            for each in versions
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, api: str) -> Object:
        found = [
            {"name": plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": inside, "verbs": VERBS}
            | ({"shortNames": ["pvc"]} if kind == "PersistentVolumeClaim" else {})
            for _, kind, inside in self.kinds(api)
        ]
        if not found:
            raise RefusedError(404, MISSING)
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": found}

    def _openapi(self, path: str) -> Object:
        """As much as kubectl looks for: that the server itself validates fields."""
        if path == "/openapi/v3":
            names = {f"api{'s' * (api != 'v1')}/{api}" for api, *_ in self.kinds()}
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}
        api = path.removeprefix("/openapi/v3/").partition("/")[2]
        group, _, version = api.rpartition("/")
        patch = {"parameters": [{"name": "fieldValidation", "in": "query"}]}
        key, known = "x-kubernetes-group-version-kind", {"group": group, "version": version}
        paths = {f"/x/{kind}": {"patch": {**patch, key: {**known, "kind": kind}}} for _, kind, _ in self.kinds(api)}
        return {"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": paths}


def _name_of(each: Object) -> str:
    return str(each["metadata"]["name"])


class _Handler(BaseHTTPRequestHandler):
    cluster: StandIn
    lock: Any
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = yaml.safe_load(self.rfile.read(size)) if size else None
        with self.lock:
            if not url.path.startswith("/openapi") and url.path.count("/") > 3:
                self.cluster.calls.append(f"{self.command} {url.path}")
            try:
                content = self.headers.get("Content-Type", "")
                code, found = 200, self.cluster.answer(self.command, url.path, query, body, content)
            except RefusedError as error:
                code, found = error.code, error.body
            data = (found if isinstance(found, str) else json.dumps(_sent(found))).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def _sent(found: Any) -> Any:
    """Without what the stand-in keeps for itself."""
    return {key: value for key, value in found.items() if key[0] != "_"}
