"""Checklist rules about pods; each rule returns what is wrong, in words."""

import re
from collections.abc import Iterator

from tests.commands.k8s.manifests import Object, Pod, of_kind, pods

DIGEST = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
SECRET_NAME = re.compile(r"TOKEN|KEY|PASSWORD|SECRET|CREDENTIAL", re.IGNORECASE)
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
