"""What the stand-in for a cluster holds: its settings, its clock, and objects that are applied, created and deleted."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
# group/version: kinds, with a dash where a kind is in no namespace; the plural is the kind's, in small letters.
KINDS = {
    "v1": "Namespace- Pod Event ConfigMap Secret ServiceAccount PersistentVolumeClaim ResourceQuota Node- Service "
    "Endpoints",
    "batch/v1": "Job",
    "apps/v1": "Deployment DaemonSet",
    "networking.k8s.io/v1": "NetworkPolicy ServiceCIDR-",
    "scheduling.k8s.io/v1": "PriorityClass-",
    "storage.k8s.io/v1": "StorageClass-",
    "node.k8s.io/v1": "RuntimeClass-",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "policy/v1": "PodDisruptionBudget",
    "ray.io/v1": "RayJob",
    "kueue.x-k8s.io/v1beta2": "ClusterQueue- LocalQueue ResourceFlavor- Topology- WorkloadPriorityClass- Workload",
    "monitoring.coreos.com/v1": "PodMonitor ServiceMonitor PrometheusRule Prometheus",
}
API_OF = {kind: api for api, kinds in KINDS.items() for kind in kinds.replace("-", "").split()}
IMMUTABLE_CLAIM = (
    "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 422: "Invalid"}


class RefusedError(Exception):
    """An API error, as the server sends it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        reason = REASONS.get(code, "ServiceUnavailable")
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
        self.body["reason"] = reason


def plural(kind: str) -> str:
    text = kind.lower()
    if text.endswith("y"):
        return f"{text[:-1]}ies"
    return text if text.endswith("endpoints") else f"{text}es" if text.endswith("s") else f"{text}s"


def labels_of(each: Object) -> dict[str, str]:
    return each["metadata"].get("labels", {})


def gpus(pod: Object) -> int:
    return sum(int(each.get("resources", {}).get("requests", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def is_active(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Pending", "Running")


@dataclass
class Store:
    """The objects and what a test sets. Keys of objects with an underscore are the stand-in's own, and are not sent."""

    version: str = "1.33"
    # Groups of kinds that the server lacks.
    without: tuple[str, ...] = ()
    # By how much the clock is put on at each round of the controllers.
    hours: float = 0.0
    # Rounds of the controllers whenever somebody reads a job: with several, a job has ended after fewer looks.
    rounds_at_a_look: int = 1
    nodes: dict[str, int] = field(default_factory=lambda: {"node-a": 8})
    node_labels: dict[str, str] = field(default_factory=dict)
    classes: dict[str, bool] = field(default_factory=lambda: {"standard": True})
    # Registries from which images can be pulled by a secret alone.
    private: tuple[str, ...] = ()
    # By a step's component: exit codes of its pods, 0 afterwards; how many rounds each runs; what they print.
    ends: dict[str, list[int]] = field(default_factory=dict)
    lasts: dict[str, int] = field(default_factory=dict)
    prints: dict[str, str] = field(default_factory=dict)
    # What happens at a round of the controllers, by its number.
    events: dict[int, Callable[[Any], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[str] = []
        self.down = False
        self.clock, self.rounds, self.numbers = 0.0, 0, count(1)
        for name, number in self.nodes.items():
            labels = {"kubernetes.io/hostname": name, **self.node_labels}
            status = {"allocatable": {GPU: str(number)}, "conditions": [{"type": "Ready", "status": "True"}]}
            self.put("Node", name, "", labels=labels, spec={}, status=status)
        for name, default in self.classes.items():
            notes = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
            self.put("StorageClass", name, "", annotations=notes, provisioner=f"{name}.example")

    def put(self, kind: str, name: str, namespace: str = "restrain", **parts: Any) -> Object:
        """Write an object that a controller or a test makes; labels, annotations and ownerReferences are metadata."""
        metadata = {key: parts.pop(key) for key in ("labels", "annotations", "ownerReferences") if key in parts}
        return self.keep({"kind": kind, "metadata": {"name": name, "namespace": namespace, **metadata}, **parts})

    def keep(self, each: Object) -> Object:
        metadata = each["metadata"]
        metadata.setdefault("uid", f"uid-{next(self.numbers)}")
        metadata.setdefault("creationTimestamp", f"2026-01-01T00:00:{next(self.numbers) % 60:02}Z")
        each.setdefault("apiVersion", API_OF[each["kind"]])
        self.objects[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
        return each

    def of(self, kind: str) -> list[Object]:
        return [each for (found, *_), each in self.objects.items() if found == kind]

    def find(self, kind: str, name: str) -> Object | None:
        return next((each for each in self.of(kind) if each["metadata"]["name"] == name), None)

    def owned(self, owner: Object) -> list[Object]:
        """The pods that an object's controller made."""
        uid = owner["metadata"]["uid"]
        return [each for each in self.of("Pod") if owner_uid(each) == uid]

    def drop(self, kind: str, name: str) -> None:
        """Delete an object and what it owns."""
        gone = self.find(kind, name)
        assert gone is not None, (kind, name)
        uid = gone["metadata"]["uid"]
        self.objects = {key: each for key, each in self.objects.items() if each is not gone and owner_uid(each) != uid}

    def event(self, about: Object | str, reason: str, message: str) -> None:
        name = about if isinstance(about, str) else about["metadata"]["name"]
        said = {"reason": reason, "message": message, "involvedObject": {"name": name}}
        self.put("Event", f"{name}.{reason}.{abs(hash(message))}", **said)

    def create(self, new: Object) -> Object:
        """Raises RefusedError in a namespace that is not there, and for an object that is."""
        each = copy.deepcopy(new)
        metadata = each["metadata"]
        namespace = metadata.get("namespace", "")
        if namespace and not self.find("Namespace", namespace):
            raise RefusedError(404, f'namespaces "{namespace}" not found')
        if (each["kind"], namespace, metadata["name"]) in self.objects:
            raise RefusedError(409, f'{plural(each["kind"])} "{metadata["name"]}" already exists')
        each["_applied"] = new
        return self.keep(each)

    def apply(self, new: Object) -> Object:
        """Server-side apply by one manager. Raises RefusedError where a field changes that cannot."""
        live = self.objects.get((new["kind"], new["metadata"].get("namespace", ""), new["metadata"]["name"]))
        if live is None:
            return self.create(new)
        changed = copy.deepcopy(live)
        merge(changed, new, live.get("_applied", {}))
        _refuse_immutable(live, changed)
        changed["_applied"] = new
        return self.keep(changed)


def owner_uid(each: Object) -> str:
    return str(each["metadata"].get("ownerReferences", [{}])[0].get("uid", ""))


def merge(live: Object, new: Object, before: Object) -> None:
    """What a manager applied before and does not now goes; lists are replaced."""
    for key in set(before) - set(new):
        live.pop(key, None)
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(live.get(key), dict):
            old = before.get(key, {})
            merge(live[key], value, old if isinstance(old, dict) else {})
        elif not key.startswith("$"):
            live[key] = copy.deepcopy(value)


def _refuse_immutable(live: Object, changed: Object) -> None:
    name = live["metadata"]["name"]
    if live["kind"] == "PersistentVolumeClaim":
        before, after = ({**each["spec"], "resources": None} for each in (live, changed))
        if before != after:
            raise RefusedError(422, f'PersistentVolumeClaim "{name}" is invalid: {IMMUTABLE_CLAIM}')
    if live["kind"] == "Job" and live["spec"]["template"] != changed["spec"]["template"]:
        raise RefusedError(422, f'Job.batch "{name}" is invalid: spec.template: Invalid value: field is immutable')
