"""A stand-in for a cluster's API server, which the real kubectl talks to over HTTP; a test says how its jobs go."""

import copy
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from restrain_openrlhf.config.documents import LOADER

Object = dict[str, Any]
# group/version: kinds, with a dash where a kind is in no namespace; the plural is the kind's, in small letters.
KINDS = {
    "v1": "Namespace- Pod Event ConfigMap ServiceAccount PersistentVolumeClaim ResourceQuota Service",
    "batch/v1": "Job",
    "apps/v1": "Deployment",
    "networking.k8s.io/v1": "NetworkPolicy",
    "scheduling.k8s.io/v1": "PriorityClass-",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "policy/v1": "PodDisruptionBudget",
    "ray.io/v1": "RayJob",
    "kueue.x-k8s.io/v1beta2": "ClusterQueue- LocalQueue ResourceFlavor- WorkloadPriorityClass- Workload",
    "monitoring.coreos.com/v1": "PodMonitor ServiceMonitor PrometheusRule",
}
API_OF = {kind: api for api, kinds in KINDS.items() for kind in kinds.replace("-", "").split()}
RESOURCE = re.compile(r"/apis?/(v1|[^/]+/[^/]+?)(?:/namespaces/([^/]+))?/([a-z0-9]+)(?:/([^/]+))?(/log)?")
NAMESPACES = re.compile(r"/api/(v1)()/(namespaces)(?:/([^/]+))?()")
MISSING = "the server could not find the requested resource"
VERBS = ["create", "delete", "get", "list", "patch"]
COMPONENT = "app.kubernetes.io/component"
FAILED = {"status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
# A job's status in each state, as its controller writes it: of a Job, and of a RayJob.
STATUS: dict[str, dict[str, Object]] = {
    "Job": {
        "waiting": {"ready": 0},
        "running": {"ready": 1},
        "complete": {"conditions": [{"type": each, "status": "True"} for each in ("SuccessCriteriaMet", "Complete")]},
        "failed": {"conditions": [{"type": each, **FAILED} for each in ("FailureTarget", "Failed")]},
    },
    "RayJob": {
        "waiting": {"jobStatus": "", "jobDeploymentStatus": "Initializing"},
        "running": {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"},
        "retrying": {"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"},
        "complete": {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"},
        "failed": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "reason": "AppFailed"},
    },
}
PHASES = {"complete": "Succeeded", "failed": "Succeeded", "running": "Running"}


class RefusedError(Exception):
    """An API error: its code, its reason and its message."""


def plural(kind: str) -> str:
    text = kind.lower()
    return f"{text[:-1]}ies" if text.endswith("y") else f"{text}es" if text.endswith("s") else f"{text}s"


def merge(live: Object, new: Object) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(live.get(key), dict):
            merge(live[key], value)
        else:
            live[key] = copy.deepcopy(value)


@dataclass
class ApiServer:
    """The objects of a cluster. A job goes through its states, one whenever somebody looks at it, and is complete."""

    version: str = "1.33"
    # Groups of kinds that the server lacks.
    without: tuple[str, ...] = ()
    # By a step's component: the states of its job, and what its pods print.
    goes: dict[str, list[str]] = field(default_factory=dict)
    prints: dict[str, str] = field(default_factory=dict)
    # What every pod has beside its template; None where no pod is made.
    pod: Object | None = field(default_factory=dict)
    down: bool = False

    def __post_init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[str] = []
        self._numbers = count(10)

    def put(self, kind: str, name: str, **parts: Any) -> None:
        """Writes an object that a controller would."""
        self.keep({"kind": kind, "metadata": {"name": name, "namespace": "restrain"}, **parts})

    def of(self, kind: str) -> list[Object]:
        return [each for (found, *_), each in self.objects.items() if found == kind]

    def serve(self, folder: Path) -> Path:
        """Starts it and writes a kubeconfig, whose path is returned."""
        handler = type("Handler", (_Handler,), {"server_": self, "lock": threading.RLock()})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        users = [{"name": "x", "user": {}}]
        config = {
            "kind": "Config",
            "current-context": "x",
            "clusters": [cluster],
            "contexts": [context],
            "users": users,
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", **config}))
        return path

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """What the server sends for a request. Raises RefusedError."""
        if self.down:
            raise RefusedError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        if path.startswith(("/version", "/openapi")) or re.fullmatch(r"/api(/v1)?|/apis(/[^/]+/[^/]+)?", path):
            return self._described(path)
        named = NAMESPACES.fullmatch(path) or RESOURCE.fullmatch(path)
        api, namespace, kinds, name, log = named.groups() if named else [""] * 5
        kind = next((each for _, each, _ in self._kinds(api) if plural(each) == kinds), None)
        if kind is None:
            raise RefusedError(404, "NotFound", MISSING)
        if method in ("POST", "APPLY"):
            return self.keep(body)
        return self._one(method, kind, (namespace or "", name), body, log) if name else self._list(kind, query)

    def keep(self, new: Object) -> Object:
        """Writes an object, and begins the job that it is."""
        key = (new["kind"], new["metadata"].get("namespace", ""), new["metadata"]["name"])
        each = {"apiVersion": API_OF[new["kind"]], **copy.deepcopy(new)}
        each["metadata"] |= {
            "uid": f"{key[0]}-{key[2]}",
            "creationTimestamp": f"2026-01-01T00:00:{next(self._numbers)}Z",
        }
        self.objects[key] = each
        if each["kind"] == "PersistentVolumeClaim":
            each["status"] = {"phase": "Bound"}
        if each["kind"] in STATUS:
            self._begin(each)
        return each

    def _begin(self, job: Object) -> None:
        """The job's pods, of which the middle one fails where the job does. Raises RefusedError without their needs."""
        name, spec = job["metadata"]["name"], job["spec"]
        job["status"] = {}
        selector = {"batch.kubernetes.io/job-name": name}
        spec["selector"] = {"matchLabels": selector}
        template = spec["template"] if job["kind"] == "Job" else spec["submitterPodTemplate"]
        self._refuse_missing(template["spec"])
        for index in range(spec.get("completions", 1) if self.pod is not None else 0):
            labels = {**template["metadata"]["labels"], **selector}
            pod = {"kind": "Pod", "metadata": {**job["metadata"], "name": f"{name}-{index}", "labels": labels}}
            pod |= {"spec": copy.deepcopy(template["spec"]), "status": {"phase": "Pending"}}
            merge(pod, self.pod or {})
            self.keep(pod)

    def _refuse_missing(self, pod: Object) -> None:
        """A pod would wait for ever for what no step has applied."""
        volumes = [(each.get("configMap", {}), each.get("persistentVolumeClaim", {})) for each in pod["volumes"]]
        needs = {("ServiceAccount", pod["serviceAccountName"])}
        needs |= {("ConfigMap", config["name"]) for config, _ in volumes if config}
        needs |= {("PersistentVolumeClaim", claim["claimName"]) for _, claim in volumes if claim}
        if missing := needs - {(kind, name) for kind, _, name in self.objects}:
            raise RefusedError(403, "Forbidden", f"its pods need {sorted(missing)}")

    def _advance(self, job: Object) -> None:
        states = self.goes.get(job["metadata"]["labels"].get(COMPONENT), [])
        if job["status"] in (STATUS[job["kind"]]["complete"], STATUS[job["kind"]]["failed"]):
            return
        state = states.pop(0) if states else "complete"
        job["status"] = copy.deepcopy(STATUS[job["kind"]][state])
        pods = [each for each in self.of("Pod") if each["metadata"]["name"].startswith(f"{job['metadata']['name']}-")]
        for index, pod in enumerate(pods):
            fails = state == "failed" and index == len(pods) // 2
            pod["status"]["phase"] = "Failed" if fails else PHASES.get(state, "Pending")

    def _one(self, method: str, kind: str, where: tuple[str, str], body: Any, log: str | None) -> Any:
        each = self.objects.get((kind, *where))
        if each is None:
            raise RefusedError(404, "NotFound", f'{plural(kind)} "{where[1]}" not found')
        if method == "PATCH":
            merge(each, body)
        elif method == "DELETE":
            own = [key for key in self.objects if key[2] == where[1] or key[2].startswith(f"{where[1]}-")]
            for key in own:
                del self.objects[key]
        elif log:
            text = self.prints.get(each["metadata"]["labels"].get(COMPONENT, ""), "")
            return text.replace("INDEX", where[1].rpartition("-")[2])
        elif kind in STATUS:
            self._advance(each)
        return each

    def _list(self, kind: str, query: dict[str, str]) -> Object:
        found = self.of(kind)
        for part in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = part.partition("=")
            found = [each for each in found if each["metadata"].get("labels", {}).get(key) == value]
        if phase := query.get("fieldSelector", "").removeprefix("status.phase="):
            found = [each for each in found if each["status"]["phase"] == phase]
        for each in found if kind in STATUS else ():
            self._advance(each)
        return {"kind": f"{kind}List", "apiVersion": API_OF[kind], "metadata": {"resourceVersion": "1"}, "items": found}

    def _kinds(self, api: str | None = None) -> Iterator[tuple[str, str, bool]]:
        """Group and version, kind, and whether it is in a namespace, of what this server has."""
        for group, names in KINDS.items():
            if group.partition("/")[0] not in self.without and api in (None, group):
                yield from ((group, name.rstrip("-"), not name.endswith("-")) for name in names.split())

    def _described(self, path: str) -> Object:
        """The version, and which kinds there are."""
        if path == "/version":
            return {"major": "1", "minor": self.version.partition(".")[2], "gitVersion": f"v{self.version}.0"}
        if path.startswith("/openapi"):
            return self._openapi(path)
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path != "/apis":
            return self._resources(path.split("/", 2)[2])
        apis = sorted({api for api, *_ in self._kinds()} - {"v1"})
        versions = [{"groupVersion": api, "version": api.partition("/")[2]} for api in apis]
        named = [(each["groupVersion"].partition("/")[0], each) for each in versions]
        groups = [{"name": name, "versions": [each], "preferredVersion": each} for name, each in named]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, api: str) -> Object:
        found = [
            {"name": plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": inside, "verbs": VERBS}
            | ({"shortNames": ["pvc"]} if kind == "PersistentVolumeClaim" else {})
            for _, kind, inside in self._kinds(api)
        ]
        if not found:
            raise RefusedError(404, "NotFound", MISSING)
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": found}

    def _openapi(self, path: str) -> Object:
        """As much as kubectl looks for: that the server itself validates fields."""
        if path == "/openapi/v3":
            names = {f"api{'s' * (api != 'v1')}/{api}" for api, *_ in self._kinds()}
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}
        api = path.removeprefix("/openapi/v3/").partition("/")[2]
        group, _, version = api.rpartition("/")
        patch = {"parameters": [{"name": "fieldValidation", "in": "query"}]}
        key, known = "x-kubernetes-group-version-kind", {"group": group, "version": version}
        paths = {f"/x/{kind}": {"patch": {**patch, key: {**known, "kind": kind}}} for _, kind, _ in self._kinds(api)}
        return {"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": paths}


class _Handler(BaseHTTPRequestHandler):
    server_: ApiServer
    lock: Any
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = yaml.load(self.rfile.read(size), LOADER) if size else None
        method = "APPLY" if "apply-patch" in self.headers.get("Content-Type", "") else self.command
        with self.lock:
            if not url.path.startswith("/openapi") and url.path.count("/") > 3:
                self.server_.calls.append(f"{method} {url.path}")
            try:
                code, found = 200, self.server_.answer(method, url.path, query, body)
            except RefusedError as error:
                code, reason, message = error.args
                found = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass
