"""Checklist rules about pods; each rule returns what is wrong, in words."""

import re
from collections.abc import Iterator

from tests.commands.k8s.manifests import Object, Pod, of_kind, pods, quantity

DIGEST = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
SECRET_NAME = re.compile(r"TOKEN|KEY|PASSWORD|SECRET|CREDENTIAL", re.IGNORECASE)
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SECRET_TEXT = re.compile(r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9]{16,}|://[^/\s@]*:[^/\s@]+@|-----BEGIN")


def images_by_digest(objects: list[Object]) -> Iterator[str]:
    for pod in pods(objects):
        for container in pod.containers:
            if not DIGEST.fullmatch(container.get("image", "")):
                yield f"{pod.name}: image {container.get('image')!r} is not by digest"


def pod_security_restricted(objects: list[Object]) -> Iterator[str]:
    """Pod Security Standards, `restricted`; exempt is IPC_LOCK of RDMA workers in a namespace that says so."""
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
        for each in of_kind(objects, "Namespace")
    }
    for pod in pods(objects):
        namespace = pod.owner["metadata"].get("namespace", "")
        exempt = pod.role == "worker" and levels.get(namespace) == "privileged" and namespace.endswith("-rdma")
        if levels.get(namespace) != "restricted" and not namespace.endswith("-rdma"):
            yield f"{pod.name}: namespace {namespace} enforces {levels.get(namespace)}"
        yield from (f"{pod.name}: {problem}" for problem in _unrestricted(pod, exempt))


def _unrestricted(pod: Pod, rdma: bool) -> Iterator[str]:
    context = pod.spec.get("securityContext", {})
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    yield from (f"uses {name}" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name))
    yield from (f"mounts hostPath {each['name']}" for each in pod.spec.get("volumes", []) if "hostPath" in each)
    for container in pod.containers:
        own = container.get("securityContext", {})
        added = set(own.get("capabilities", {}).get("add", [])) - ({"IPC_LOCK"} if rdma else set())
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield "may escalate privileges"
        if own.get("capabilities", {}).get("drop") != ["ALL"] or added:
            yield f"keeps capabilities {sorted(added)}"
        if own.get("readOnlyRootFilesystem") is not True:
            yield "has a writable root"
        if own.get("runAsUser") == 0 or own.get("runAsNonRoot") is False:
            yield "has a container that runs as root"


def own_service_accounts(objects: list[Object]) -> Iterator[str]:
    accounts = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    for each in of_kind(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
        yield f"{each['kind']}/{each['metadata']['name']}: nothing here talks to the API server"
    for name, account in accounts.items():
        if account.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{name} mounts its token"
    for pod in pods(objects):
        if pod.spec.get("serviceAccountName") not in accounts:
            yield f"{pod.name}: service account {pod.spec.get('serviceAccountName')!r} is not one of ours"
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.name}: mounts a service account token"


def no_secret_in_sight(objects: list[Object]) -> Iterator[str]:
    for each in of_kind(objects, "Secret"):
        yield f"Secret/{each['metadata']['name']}: secrets are made in the cluster, not kept in git"
    for each in of_kind(objects, "RayJob"):
        words = f"{each['spec'].get('entrypoint', '')} {each['spec'].get('runtimeEnvYAML', '')}"
        if SECRET_TEXT.search(words) or re.search(r"\$\{?[A-Z_]*(TOKEN|KEY|PASSWORD|SECRET)", words):
            yield f"RayJob/{each['metadata']['name']}: a secret reaches a command line"
    for each in of_kind(objects, "ConfigMap"):
        if any(SECRET_TEXT.search(text) for text in each.get("data", {}).values()):
            yield f"ConfigMap/{each['metadata']['name']}: holds a secret"
    for pod in pods(objects):
        for container in pod.containers:
            yield from (f"{pod.name}: {problem}" for problem in _secrets_of(container))


def _secrets_of(container: dict) -> Iterator[str]:
    words = " ".join([*container.get("command", []), *container.get("args", [])])
    secret = {each["name"] for each in container.get("env", []) if "secretKeyRef" in each.get("valueFrom", {})}
    if SECRET_TEXT.search(words) or any(f"$({name})" in words or f"${name}" in words for name in secret):
        yield "a secret in its arguments"
    for each in container.get("env", []):
        if "value" in each and (SECRET_NAME.search(each["name"]) or SECRET_TEXT.search(each["value"])):
            yield f"{each['name']} is written out"


def mounts_resolve(objects: list[Object]) -> Iterator[str]:
    claims = {each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")}
    configs = {each["metadata"]["name"] for each in of_kind(objects, "ConfigMap")}
    for pod in pods(objects):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        for container in pod.containers:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{pod.name}: mounts {mount['name']}, which is no volume"
            for source in container.get("envFrom", []):
                if source["configMapRef"]["name"] not in configs:
                    yield f"{pod.name}: takes its environment from {source['configMapRef']['name']}, which is not there"
        for volume in volumes.values():
            if volume.get("persistentVolumeClaim", {}).get("claimName", "models") not in claims:
                yield f"{pod.name}: claim of {volume['name']} is not there"
            if "configMap" in volume and volume["configMap"]["name"] not in configs:
                yield f"{pod.name}: ConfigMap {volume['configMap']['name']} is not there"


def resources_are_whole(objects: list[Object]) -> Iterator[str]:
    for pod in pods(objects):
        for container in pod.containers:
            resources = container.get("resources", {})
            requests, limits = resources.get("requests", {}), resources.get("limits", {})
            for name in ("cpu", "memory"):
                if name not in requests or name not in limits:
                    yield f"{pod.name}: {name} has no request or no limit"
                elif quantity(requests[name]) > quantity(limits[name]):
                    yield f"{pod.name}: asks for more {name} than its limit"
            if requests.get("nvidia.com/gpu") != limits.get("nvidia.com/gpu"):
                yield f"{pod.name}: GPUs asked for and limited differ"


def writable_places(objects: list[Object]) -> Iterator[str]:
    """Under a read-only root: /tmp, the caches, and shared memory smaller than the memory limit it counts against."""
    for pod in pods(objects):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
        for container in pod.containers:
            mounts = {each["mountPath"]: volumes.get(each["name"], {}) for each in container.get("volumeMounts", [])}
            if "emptyDir" not in mounts.get("/tmp", {}):
                yield f"{pod.name}: /tmp is not writable"
            if container.get("envFrom") and "emptyDir" not in mounts.get("/cache", {}):
                yield f"{pod.name}: /cache is not writable"
            if pod.gpus or pod.role in ("head", "worker"):
                yield from _ray_store(pod, mounts.get("/dev/shm", {}).get("emptyDir", {}), container)
                yield from _shared_memory(pod, mounts.get("/dev/shm", {}).get("emptyDir", {}), container)
        for volume in volumes.values():
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{pod.name}: {volume['name']} has no size limit"


def _shared_memory(pod: Pod, volume: dict, container: dict) -> Iterator[str]:
    limit = container.get("resources", {}).get("limits", {}).get("memory", 0)
    if volume.get("medium") != "Memory" or not 0 < quantity(volume.get("sizeLimit", 0)) < quantity(limit):
        yield f"{pod.name}: /dev/shm is not memory with a size below the memory limit"


def _ray_store(pod: Pod, volume: dict, container: dict) -> Iterator[str]:
    """Where it is larger than /dev/shm, Ray puts it into /tmp (ray/_private/utils.py, resolve_object_store_memory)."""
    ray = pod.role or pod.labels.get("app.kubernetes.io/component") in ("train", "test-time")
    shared = quantity(volume.get("sizeLimit", 0))
    memory = quantity(container.get("resources", {}).get("limits", {}).get("memory", 0))
    store = min(0.3 * memory, max(10e9, 0.95 * shared), 200e9)
    if ray and store > shared:
        yield f"{pod.name}: Ray's object store of {store / 2**30:.1f} GiB is not in /dev/shm, which is smaller"


def registries_are_told(objects: list[Object]) -> Iterator[str]:
    """Where an image is unset, its owner says so where admission policies look: in an annotation."""
    for pod in pods(objects):
        registries = {each["image"].split("/")[0] for each in pod.containers}
        told = pod.owner["metadata"].get("annotations", {}).get("restrain-openrlhf/image-registry")
        if (UNSET in registries) is not (told == UNSET):
            yield f"{pod.name}: has an image of {registries} and says {told}"


UNSET = "registry.invalid"


def kept_by_the_autoscaler(objects: list[Object]) -> Iterator[str]:
    """Whatever would start again from its last checkpoint says that its node is not to be emptied."""
    for pod in pods(objects):
        if pod.owner["kind"] in ("Job", "RayJob") and pod.annotations.get(SAFE_TO_EVICT) != "false":
            yield f"{pod.name}: an autoscaler may evict it"


SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def gpus_are_seen_where_asked_for(objects: list[Object]) -> Iterator[str]:
    """NVIDIA's runtime shows every GPU of the node to a pod that asks for none, unless the pod says otherwise."""
    for pod in pods(objects):
        values = [each.get("value") for one in pod.containers for each in one.get("env", []) if each["name"] == VISIBLE]
        if values != ([] if pod.gpus else ["void"]):
            yield f"{pod.name}: {VISIBLE} is {values} and it asks for {pod.gpus} GPUs"
