"""A stand-in for a cluster's API server and controllers, which the real kubectl talks to over HTTP.

What it does is what Kubernetes' pages say of each part, in their names and in the servers' own words: server-side apply
(fields that a manager no longer applies are removed), fields that cannot change, admission (service accounts, priority
classes, quota), claims and storage classes, scheduling, pulling images, Jobs and their failures, Kueue's suspension,
and RayJobs as KubeRay's controller has them (rayjob_controller.go: suspended jobs have no start time, and each retry
gets a new one). The controllers go one round whenever somebody reads a job, and the clock goes on by `hours`. It runs
no containers: a test says how they end and what they print.
"""

import copy
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
# group/version: kind and whether it is in a namespace; the plural is the kind's, in small letters.
KINDS = {
    "v1": "Namespace- Pod Event ConfigMap ServiceAccount PersistentVolumeClaim ResourceQuota Node- Service Endpoints",
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
IMMUTABLE_CLAIM = (
    "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
QUEUE = "kueue.x-k8s.io/queue-name"


def plural(kind: str) -> str:
    text = kind.lower()
    return (
        text
        if text.endswith("endpoints")
        else f"{text[:-1]}ies"
        if text.endswith("y")
        else f"{text}es"
        if text[-1] == "s"
        else f"{text}s"
    )


class RefusedError(Exception):
    """An API error: its code, reason and message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


@dataclass
class StandIn:
    """A cluster. Of a step's component, `ends` has the exit codes of its pods, 0 afterwards; `prints` their output."""

    version: str = "1.33"
    without: tuple[str, ...] = ()
    hours: float = 0.0
    nodes: dict[str, int] = field(default_factory=lambda: {"node-a": 8})
    node_labels: dict[str, str] = field(default_factory=dict)
    classes: dict[str, bool] = field(default_factory=lambda: {"standard": True})
    # Registries from which nothing can be pulled, or by a secret alone.
    broken: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    ends: dict[str, list[int]] = field(default_factory=dict)
    prints: dict[str, str] = field(default_factory=dict)
    # What happens at a round of the controllers, by its number.
    events: dict[int, Callable[["StandIn"], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[str] = []
        self.down = False
        self.clock, self.rounds, self.numbers = 0.0, 0, count(1)
        self.lock = threading.RLock()
        for name, gpus in self.nodes.items():
            labels = {"kubernetes.io/hostname": name, **self.node_labels}
            status = {"allocatable": {GPU: str(gpus)}}
            self.put({"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status})
        for name, default in self.classes.items():
            notes = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
            self.put(
                {
                    "kind": "StorageClass",
                    "metadata": {"name": name, "annotations": notes},
                    "provisioner": f"{name}.example",
                }
            )

    # What a test or a controller writes and reads.

    def put(self, each: Object) -> Object:
        each["metadata"].setdefault("uid", f"uid-{next(self.numbers)}")
        each["metadata"].setdefault("creationTimestamp", f"2026-01-01T00:00:{next(self.numbers) % 60:02}Z")
        each.setdefault(
            "apiVersion", next(api for api, kinds in KINDS.items() if each["kind"] in kinds.replace("-", "").split())
        )
        self.objects[each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]] = each
        return each

    def of(self, kind: str) -> list[Object]:
        return [each for (found, *_), each in self.objects.items() if found == kind]

    def find(self, kind: str, name: str) -> Object | None:
        return next((each for each in self.of(kind) if each["metadata"]["name"] == name), None)

    def drop(self, kind: str, name: str) -> None:
        gone = self.find(kind, name)
        assert gone is not None, (kind, name)
        uid = gone["metadata"]["uid"]
        self.objects = {
            key: each
            for key, each in self.objects.items()
            if each is not gone and each["metadata"].get("ownerReferences", [{}])[0].get("uid") != uid
        }

    def event(self, about: Object | str, reason: str, message: str, kind: str = "Warning") -> None:
        name = about if isinstance(about, str) else about["metadata"]["name"]
        found = {"name": f"{name}.{reason}.{abs(hash(message))}", "namespace": "restrain"}
        self.put(
            {
                "kind": "Event",
                "type": kind,
                "metadata": found,
                "reason": reason,
                "message": message,
                "involvedObject": {"name": name},
            }
        )

    # Server-side apply, create, patch.

    def apply(self, new: Object) -> Object:
        key = (new["kind"], new["metadata"].get("namespace", ""), new["metadata"]["name"])
        live = self.objects.get(key)
        if live is None:
            return self.create(new)
        changed = copy.deepcopy(live)
        _merge(changed, live.get("_applied", {}), new)
        self._refuse_immutable(live, changed)
        changed["_applied"] = new
        self.objects[key] = changed
        return changed

    def create(self, new: Object) -> Object:
        each = copy.deepcopy(new)
        namespace = each["metadata"].get("namespace")
        if namespace and not self.find("Namespace", namespace):
            raise RefusedError(404, "NotFound", f'namespaces "{namespace}" not found')
        if (each["kind"], namespace or "", each["metadata"]["name"]) in self.objects:
            raise RefusedError(
                409, "AlreadyExists", f'{plural(each["kind"])} "{each["metadata"]["name"]}" already exists'
            )
        if each["kind"] == "Pod":
            each.setdefault("status", {"phase": "Pending"})
            self._admit(each)
        if self._queued(each):
            # Kueue's webhook.
            each["spec"]["suspend"] = True
        each["_applied"] = new
        return self.put(each)

    def _refuse_immutable(self, live: Object, changed: Object) -> None:
        name = live["metadata"]["name"]
        if live["kind"] == "PersistentVolumeClaim":
            specs = [copy.deepcopy(each["spec"]) for each in (live, changed)]
            for spec in specs:
                spec.pop("resources", None)
            if specs[0] != specs[1]:
                raise RefusedError(422, "Invalid", f'PersistentVolumeClaim "{name}" is invalid: {IMMUTABLE_CLAIM}')
        if live["kind"] == "Job" and live["spec"]["template"] != changed["spec"]["template"]:
            raise RefusedError(
                422, "Invalid", f'Job.batch "{name}" is invalid: spec.template: Invalid value: field is immutable'
            )

    # Admission.

    def _admit(self, pod: Object) -> None:
        spec, start = pod["spec"], f'pods "{pod["metadata"]["name"]}" is forbidden: '
        account = spec.get("serviceAccountName", "default")
        if account != "default" and not self.find("ServiceAccount", account):
            raise RefusedError(
                403,
                "Forbidden",
                f'{start}error looking up service account restrain/{account}: serviceaccount "{account}" not found',
            )
        if (wanted := spec.get("priorityClassName")) and not self.find("PriorityClass", wanted):
            raise RefusedError(403, "Forbidden", f"{start}no PriorityClass with name {wanted} was found")
        requested, used = (
            _gpus(pod),
            sum(_gpus(each) for each in self.of("Pod") if each["status"]["phase"] in ("Pending", "Running")),
        )
        for quota in self.of("ResourceQuota"):
            limit = int(quota["spec"]["hard"][f"requests.{GPU}"])
            if requested and used + requested > limit:
                name = f"requests.{GPU}"
                raise RefusedError(
                    403,
                    "Forbidden",
                    f"{start}exceeded quota: {quota['metadata']['name']}, requested: {name}={requested}, "
                    f"used: {name}={used}, limited: {name}={limit}",
                )

    def _pod(self, owner: Object, name: str, template: Object, labels: dict[str, str]) -> Object:
        """Raises RefusedError."""
        metadata = {
            **copy.deepcopy(template.get("metadata", {})),
            "name": name,
            "namespace": owner["metadata"]["namespace"],
        }
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
        metadata["ownerReferences"] = [
            {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
        return self.create(
            {
                "kind": "Pod",
                "metadata": metadata,
                "spec": copy.deepcopy(template["spec"]),
                "status": {"phase": "Pending"},
            }
        )

    # Controllers.

    def round(self) -> None:
        self.rounds += 1
        self.clock += self.hours * 3600
        if self.rounds in self.events:
            self.events[self.rounds](self)
        for claim in self.of("PersistentVolumeClaim"):
            self._provision(claim)
        self._kueue()
        for each in self.of("RayJob"):
            self._ray_job(each)
        for each in self.of("Job"):
            self._job(each)
        for each in self.of("Pod"):
            self._schedule(each)

    def _provision(self, claim: Object) -> None:
        status = claim.setdefault("status", {"phase": "Pending"})
        if status["phase"] == "Bound":
            return
        default = next((name for name, is_default in self.classes.items() if is_default), None)
        name = claim["spec"].get("storageClassName", default)
        if name is None:
            self.event(
                claim,
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set",
                "Normal",
            )
        elif not self.find("StorageClass", name):
            self.event(claim, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')
        else:
            status["phase"] = "Bound"

    def _queued(self, each: Object) -> bool:
        waits = each["kind"] in ("Job", "RayJob") and QUEUE in each["metadata"].get("labels", {})
        return waits and "kueue.x-k8s.io" not in self.without

    def _kueue(self) -> None:
        queues = self.of("ClusterQueue")
        for each in [*self.of("Job"), *self.of("RayJob")]:
            if not self._queued(each) or not queues or not each["spec"].get("suspend"):
                continue
            resources = queues[0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
            (limit,) = [int(one["nominalQuota"]) for one in resources if one["name"] == GPU]
            used, wanted = (
                sum(_gpus(pod) for pod in self.of("Pod") if pod["status"]["phase"] != "Succeeded"),
                _all_gpus(each),
            )
            start = "couldn't assign flavors to pod set gpu: insufficient "
            if wanted > limit:
                text = (
                    f"{start}quota for {GPU} in flavor restrain-gpu, previously considered podsets requests (0) + "
                    f"current podset request ({wanted}) > maximum capacity ({limit})"
                )
            elif used + wanted > limit:
                text = f"{start}unused quota for {GPU} in flavor restrain-gpu, {used + wanted - limit} more needed"
            else:
                text, each["spec"]["suspend"] = "Quota reserved in ClusterQueue restrain", False
            owner = [{"kind": each["kind"], "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}]
            name = {
                "name": f"{each['kind'].lower()}-{each['metadata']['name']}",
                "namespace": "restrain",
                "ownerReferences": owner,
            }
            state = str(not each["spec"]["suspend"])
            self.put(
                {
                    "kind": "Workload",
                    "metadata": name,
                    "status": {"conditions": [{"type": "QuotaReserved", "status": state, "message": text}]},
                }
            )

    def _job(self, job: Object) -> None:
        spec, name = job["spec"], job["metadata"]["name"]
        status = job.setdefault("status", {})
        if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions", [])):
            return None
        if spec.get("suspend"):
            status["conditions"] = [{"type": "Suspended", "status": "True"}]
            return None
        status["conditions"] = []
        started = job.setdefault("_start", self.clock)
        if self.clock - started > spec.get("activeDeadlineSeconds", 10**9):
            return self._end(job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        uid = job["metadata"]["uid"]
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
        own = [
            each
            for each in self.of("Pod")
            if each["metadata"]["labels"].get("batch.kubernetes.io/controller-uid") == uid
        ]
        done = {each["index"] for each in own if each["status"]["phase"] == "Succeeded"}
        active = {each["index"] for each in own if each["status"]["phase"] in ("Pending", "Running")}
        failed = [each for each in own if each["status"]["phase"] == "Failed"]
        wanted = spec.get("completions", 1)
        if len(done) == wanted:
            return self._end(job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if failed and self._fails(job, failed):
            return None
        labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name, "job-name": name}
        for index in sorted(set(range(wanted)) - done - active)[: max(0, spec.get("parallelism", 1) - len(active))]:
            part = f"-{index}" if spec.get("completionMode") == "Indexed" else ""
            try:
                self._pod(job, f"{name}{part}-{next(self.numbers):05}", spec["template"], labels)["index"] = index
            except RefusedError as error:
                self.event(job, "FailedCreate", f"Error creating: {error}")
        status["ready"] = sum(each["status"]["phase"] == "Running" for each in own)
        return None

    def _fails(self, job: Object, failed: list[Object]) -> bool:
        spec = job["spec"]
        rules = spec.get("podFailurePolicy", {}).get("rules", [])
        final = [code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]]
        pod = failed[-1]
        if (code := pod["code"]) in final:
            text = (
                f"Container main for pod restrain/{pod['metadata']['name']} failed with exit code {code} "
                "matching FailJob rule at index 1"
            )
            self._end(job, "Failed", "PodFailurePolicy", text)
        elif "backoffLimitPerIndex" in spec:
            counts = [sum(each["index"] == index for each in failed) for index in {each["index"] for each in failed}]
            if max(counts) <= spec["backoffLimitPerIndex"]:
                return False
            self._end(job, "Failed", "FailedIndexes", "Job has failed indexes")
        elif len(failed) > spec.get("backoffLimit", 6):
            self._end(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        else:
            return False
        return True

    def _end(self, job: Object, kind: str, reason: str, message: str) -> None:
        before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
        job["status"]["conditions"] = [
            {"type": each, "status": "True", "reason": reason, "message": message} for each in (before, kind)
        ]
        job["status"].pop("ready", None)
        for pod in self._owned(job):
            if pod["status"]["phase"] in ("Pending", "Running"):
                self.drop("Pod", pod["metadata"]["name"])

    def _owned(self, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [
            each for each in self.of("Pod") if each["metadata"].get("ownerReferences", [{"uid": ""}])[0]["uid"] == uid
        ]

    def _ray_job(self, job: Object) -> None:
        spec, name, status = job["spec"], job["metadata"]["name"], job.setdefault("status", {"failed": 0})
        if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
            return None
        if spec.get("suspend"):
            status["jobDeploymentStatus"] = "Suspended"
            return None
        if status.get("jobDeploymentStatus") in (None, "Suspended", "Retrying"):
            status |= {
                "jobDeploymentStatus": "Initializing",
                "jobStatus": "",
                "cluster": f"{name}-{next(self.numbers):05}",
            }
            job["_start"] = self.clock
            for pod in [*self._owned(job)]:
                self.drop("Pod", pod["metadata"]["name"])
            if self.find("Job", name):
                self.drop("Job", name)
        waited = self.clock - job["_start"]
        if status["jobDeploymentStatus"] == "Initializing" and waited > spec.get("preRunningDeadlineSeconds", 10**9):
            return self._ray_failed(
                job, "PreRunningDeadlineExceeded", "The RayJob has passed the preRunningDeadlineSeconds."
            )
        if waited > spec.get("activeDeadlineSeconds", 10**9):
            return self._ray_failed(job, "DeadlineExceeded", "The RayJob has passed the activeDeadlineSeconds.")
        self._ray_cluster(job)
        pods = self._owned(job)
        submitter = self.find("Job", name)
        if status["jobDeploymentStatus"] == "Initializing":
            if len(pods) == 1 + _workers(job) and all(each["status"]["phase"] == "Running" for each in pods):
                status |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
                body = {"backoffLimit": 0, "template": spec["submitterPodTemplate"]}
                self.put({"kind": "Job", "metadata": {"name": name, "namespace": "restrain"}, "spec": body})
        elif submitter and (found := submitter.get("status", {}).get("conditions")):
            if found[-1]["type"] == "Complete":
                status |= {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
                self._shut_down(job)
            elif found[-1]["type"] == "Failed":
                return self._ray_failed(job, "AppFailed", "Job entrypoint command failed with exit code 1")
        return None

    def _shut_down(self, job: Object) -> None:
        for pod in self._owned(job) if job["spec"].get("shutdownAfterJobFinishes") else ():
            self.drop("Pod", pod["metadata"]["name"])

    def _ray_failed(self, job: Object, reason: str, message: str) -> None:
        status = job["status"]
        status["failed"] += 1
        again = status["failed"] <= job["spec"].get("backoffLimit", 0)
        status |= {
            "jobStatus": "FAILED",
            "jobDeploymentStatus": "Retrying" if again else "Failed",
            "reason": reason,
            "message": message,
        }

    def _ray_cluster(self, job: Object) -> None:
        cluster, name = job["spec"]["rayClusterSpec"], job["status"]["cluster"]
        there = {each["metadata"]["name"] for each in self._owned(job)}
        groups = [("Head", f"{name}-head", cluster["headGroupSpec"]["template"])]
        group = cluster["workerGroupSpecs"][0]
        groups += [("Worker", f"{name}-gpu-worker-{number}", group["template"]) for number in range(group["replicas"])]
        for role, pod, template in groups:
            try:
                if pod not in there:
                    self._pod(job, pod, template, {})
            except RefusedError as error:
                self.event(name, f"FailedToCreate{role}Pod", f"Failed to create {role.lower()} Pod restrain/, {error}")

    def _schedule(self, pod: Object) -> None:
        status, spec = pod["status"], pod["spec"]
        if status["phase"] == "Running":
            status["left"] -= 1
            if status["left"] <= 0 and pod["metadata"].get("ownerReferences", [{"kind": ""}])[0]["kind"] == "Job":
                component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
                codes = self.ends.get(component, [])
                pod["code"] = codes.pop(0) if codes else 0
                status["phase"] = "Failed" if pod["code"] else "Succeeded"
                status["containerStatuses"] = [{"state": {"terminated": {"exitCode": pod["code"]}}}]
            return None
        if status["phase"] != "Pending":
            return None
        reason = self._unschedulable(pod)
        scheduled = {"type": "PodScheduled", "status": "False" if reason else "True"}
        status["conditions"] = [scheduled | ({"reason": "Unschedulable", "message": reason} if reason else {})]
        if reason:
            return self.event(pod, "FailedScheduling", reason)
        spec["nodeName"] = next(iter(self.nodes))
        waits = self._not_started(pod)
        if waits:
            status["containerStatuses"] = [{"state": {"waiting": {"reason": waits[0], "message": waits[1]}}}]
            return None
        status |= {"phase": "Running", "left": 1, "containerStatuses": [{"state": {"running": {}}}]}
        return None

    def _unschedulable(self, pod: Object) -> str | None:
        start, end = (
            f"0/{len(self.nodes)} nodes are available: ",
            " preemption: not eligible due to preemptionPolicy=Never.",
        )
        names = [
            each["persistentVolumeClaim"]["claimName"]
            for each in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in each
        ]
        for name in names:
            claim = self.find("PersistentVolumeClaim", name)
            if claim is None:
                return f'{start}persistentvolumeclaim "{name}" not found.'
            if claim.get("status", {}).get("phase") != "Bound":
                return f"{start}pod has unbound immediate PersistentVolumeClaims.{end}"
        wanted = pod["spec"].get("nodeSelector", {})
        fitting = [each for each in self.of("Node") if wanted.items() <= each["metadata"]["labels"].items()]
        if not fitting:
            return f"{start}{len(self.nodes)} node(s) didn't match Pod's node affinity/selector.{end}"
        free = sum(int(each["status"]["allocatable"][GPU]) for each in fitting)
        free -= sum(
            _gpus(each)
            for each in self.of("Pod")
            if each["spec"].get("nodeName") and each["status"]["phase"] in ("Pending", "Running") and each is not pod
        )
        if _gpus(pod) > free:
            return f"{start}{len(fitting)} Insufficient {GPU}.{end}"
        return None

    def _not_started(self, pod: Object) -> tuple[str, str] | None:
        for volume in pod["spec"].get("volumes", []):
            name = volume.get("configMap", {}).get("name")
            if name and not self.find("ConfigMap", name):
                self.event(
                    pod,
                    "FailedMount",
                    f'MountVolume.SetUp failed for volume "{volume["name"]}" : configmap "{name}" not found',
                )
                return "ContainerCreating", ""
        account = self.find("ServiceAccount", pod["spec"].get("serviceAccountName", "default")) or {}
        for container in pod["spec"]["containers"]:
            image = container["image"]
            registry = image.partition("/")[0]
            if registry in self.broken or (registry in self.private and not account.get("imagePullSecrets")):
                return (
                    "ImagePullBackOff",
                    f'Back-off pulling image "{image}": ErrImagePull: pull access denied, repository does not exist '
                    "or may require authorization",
                )
            for source in container.get("envFrom", []):
                name = source["configMapRef"]["name"]
                if not self.find("ConfigMap", name):
                    return "CreateContainerConfigError", f'configmap "{name}" not found'
        return None

    # HTTP.

    def serve(self, folder: Path) -> Path:
        """Starts it and writes a kubeconfig, whose path is returned."""
        handler = type("Handler", (_Handler,), {"cluster": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{self.server.server_address[1]}"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": where}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}], "users": [{"name": "x", "user": {}}],
        }  # fmt: skip
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def kinds(self) -> Iterator[tuple[str, str, bool]]:
        for api, names in KINDS.items():
            if api.partition("/")[0] not in self.without:
                yield from ((api, name.rstrip("-"), not name.endswith("-")) for name in names.split())

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, content: str) -> Any:
        if self.down:
            raise RefusedError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        if path == "/version":
            return {"major": "1", "minor": self.version.partition(".")[2], "gitVersion": f"v{self.version}.0"}
        if path in ("/api", "/apis"):
            return self._groups(path)
        if found := re.fullmatch(r"/api/(v1)|/apis/([^/]+/[^/]+)", path):
            return self._resources(found[1] or found[2])
        if path.startswith("/openapi/v3"):
            return self._openapi(path)
        found = re.fullmatch(r"/apis?/(v1|[^/]+/[^/]+?)(?:/namespaces/([^/]+))?/([a-z0-9]+)(?:/([^/]+))?(/log)?", path)
        if (found and found[3] == "namespaces") or re.fullmatch(r"/api/v1/namespaces/[^/]+", path):
            found = re.fullmatch(r"/api/(v1)()/(namespaces)(?:/([^/]+))?()", path)
        if not found:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        api, namespace, kinds, name, log = found.groups()
        kind = next((each for group, each, _ in self.kinds() if (group, plural(each)) == (api, kinds)), None)
        if kind is None:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return self._object(method, kind, namespace or "", name, bool(log), query, body, content)

    def _object(
        self,
        method: str,
        kind: str,
        namespace: str,
        name: str | None,
        log: bool,
        query: dict[str, str],
        body: Any,
        content: str,
    ) -> Any:
        if method == "GET" and kind in ("Job", "RayJob"):
            self.round()
        if method == "GET" and name is None:
            return self._list(kind, namespace, query)
        if method == "POST":
            return self.create(body)
        if method == "PATCH" and "apply-patch" in content:
            return self.apply(body)
        each = self.objects.get((kind, namespace, name or ""))
        if each is None:
            raise RefusedError(404, "NotFound", f'{plural(kind)} "{name}" not found')
        if method == "PATCH":
            _merge(each, {}, body)
        if method == "DELETE":
            self.drop(kind, str(name))
        if log:
            if each["status"]["phase"] == "Pending":
                raise RefusedError(
                    400, "BadRequest", f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
                )
            lines = (
                self.prints.get(each["metadata"]["labels"]["app.kubernetes.io/component"], "")
                .format(index=each.get("index", 0))
                .splitlines(True)
            )
            return "".join(lines[-int(query.get("tailLines", "100000")) :])
        return each

    def _list(self, kind: str, namespace: str, query: dict[str, str]) -> Object:
        found = [each for each in self.of(kind) if not namespace or each["metadata"].get("namespace") == namespace]
        for part in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = part.partition("=")
            found = [each for each in found if each["metadata"].get("labels", {}).get(key) == value]
        for part in filter(None, query.get("fieldSelector", "").split(",")):
            key, _, value = part.partition("=")
            assert key == "status.phase", key
            found = [each for each in found if each["status"]["phase"] == value]
        api = next(group for group, each, _ in self.kinds() if each == kind)
        return {"kind": f"{kind}List", "apiVersion": api, "metadata": {"resourceVersion": "1"}, "items": found}

    def _groups(self, path: str) -> Object:
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        apis = {api for api, *_ in self.kinds()} - {"v1"}
        groups = [{"groupVersion": api, "version": api.partition("/")[2]} for api in sorted(apis)]
        named = [
            {"name": each["groupVersion"].partition("/")[0], "versions": [each], "preferredVersion": each}
            for each in groups
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}

    def _resources(self, api: str) -> Object:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        short = {"PersistentVolumeClaim": ["pvc"]}
        found = [
            {
                "name": plural(kind),
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": inside,
                "verbs": verbs,
                "shortNames": short.get(kind, []),
            }
            for group, kind, inside in self.kinds()
            if group == api
        ]
        if not found:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": found}

    def _openapi(self, path: str) -> Object:
        """As much as kubectl looks for: that the server itself validates fields."""
        if path == "/openapi/v3":
            names = {f"api{'s' * (api != 'v1')}/{api}" for api, *_ in self.kinds()}
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}
        api = path.removeprefix("/openapi/v3/").partition("/")[2]
        group, _, version = api.rpartition("/")
        parameters = [{"name": "fieldValidation", "in": "query"}]
        paths = {
            f"/x/{kind}": {
                "patch": {
                    "parameters": parameters,
                    "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
                }
            }
            for found, kind, _ in self.kinds()
            if found == api
        }
        return {"openapi": "3.0.0", "info": {"title": "x", "version": "1"}, "paths": paths}


class _Handler(BaseHTTPRequestHandler):
    cluster: StandIn
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = yaml.safe_load(self.rfile.read(size)) if size else None
        with self.cluster.lock:
            if not url.path.startswith("/openapi") and url.path.count("/") > 3:
                self.cluster.calls.append(f"{self.command} {url.path}")
            try:
                found, code = (
                    self.cluster.answer(self.command, url.path, query, body, self.headers.get("Content-Type", "")),
                    200,
                )
            except RefusedError as error:
                found, code = error.body, error.body["code"]
            text = found if isinstance(found, str) else json.dumps({k: v for k, v in found.items() if k[0] != "_"})
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def _merge(live: Object, before: Object, new: Object) -> None:
    """Server-side apply by one manager: what it applied before and does not now goes; lists are replaced."""
    for key in set(before) - set(new):
        live.pop(key, None)
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(live.get(key), dict):
            old = before.get(key, {})
            _merge(live[key], old if isinstance(old, dict) else {}, value)
        else:
            live[key] = copy.deepcopy(value)


def _gpus(pod: Object) -> int:
    return sum(int(each.get("resources", {}).get("requests", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def _workers(job: Object) -> int:
    return int(job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"])


def _all_gpus(job: Object) -> int:
    if job["kind"] == "RayJob":
        return _workers(job) * _gpus(job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"])
    return int(job["spec"].get("parallelism", 1)) * _gpus(job["spec"]["template"])
