"""The stand-in's pods: admission, claims, scheduling, pulling images, their ends, and nodes that are lost."""

import copy

from tests.commands.k8s.stand_in.store import GPU, Object, RefusedError, Store, gpus, is_active, labels_of

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NOT_PREEMPTED = " preemption: not eligible due to preemptionPolicy=Never."


def make_pod(store: Store, owner: Object, name: str, template: Object, labels: dict[str, str]) -> Object:
    """Raises RefusedError where admission forbids it."""
    template = copy.deepcopy(template)
    metadata = {**template.get("metadata", {}), "name": name, "namespace": owner["metadata"]["namespace"]}
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    known = {key: owner["metadata"][key] for key in ("name", "uid")}
    metadata["ownerReferences"] = [{"kind": owner["kind"], **known}]
    return admit(store, {"kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def admit(store: Store, pod: Object) -> Object:
    """What the API server does with a new pod. Raises RefusedError."""
    spec, start = pod["spec"], f'pods "{pod["metadata"]["name"]}" is forbidden: '
    account = spec.get("serviceAccountName", "default")
    found = store.find("ServiceAccount", account)
    if account != "default" and found is None:
        where = f'restrain/{account}: serviceaccount "{account}" not found'
        raise RefusedError(403, f"{start}error looking up service account {where}")
    if (wanted := spec.get("priorityClassName")) and not store.find("PriorityClass", wanted):
        raise RefusedError(403, f"{start}no PriorityClass with name {wanted} was found")
    _refuse_over_quota(store, pod, start)
    # A pod has the secrets of its account as they were when it was made.
    secrets = (found or {}).get("imagePullSecrets", [])
    return store.create({**pod, "spec": {"imagePullSecrets": secrets, **spec}, "status": {"phase": "Pending"}})


def _refuse_over_quota(store: Store, pod: Object, start: str) -> None:
    name, requested = f"requests.{GPU}", gpus(pod)
    used = sum(gpus(each) for each in store.of("Pod") if is_active(each))
    for quota in store.of("ResourceQuota"):
        limit = int(quota["spec"]["hard"][name])
        if requested and used + requested > limit:
            numbers = f"requested: {name}={requested}, used: {name}={used}, limited: {name}={limit}"
            raise RefusedError(403, f"{start}exceeded quota: {quota['metadata']['name']}, {numbers}")


def occupy(store: Store, node: str) -> None:
    """Another job of the namespace has eight GPUs until its pod is dropped."""
    containers = [{"name": "x", "image": "x", "resources": {"requests": {GPU: "8"}}}]
    labels, spec = {"app.kubernetes.io/component": "other"}, {"containers": containers, "nodeName": node}
    store.put("Pod", "other", labels=labels, spec=spec, status={"phase": "Running"}, _start=0, _left=0)


def provision(store: Store, claim: Object) -> None:
    """Bind a claim if its class is there."""
    status = claim.setdefault("status", {"phase": "Pending"})
    default = next((name for name, is_default in store.classes.items() if is_default), None)
    name = claim["spec"].get("storageClassName", default)
    if name is None:
        message = "no persistent volumes available for this claim and no storage class is set"
        store.event(claim, "FailedBinding", message)
    elif store.find("StorageClass", name):
        status["phase"] = "Bound"
    else:
        store.event(claim, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')


def lose(store: Store, name: str) -> None:
    """A node answers no more: after its tolerations' five minutes its pods are deleted, which only it could confirm."""
    node = store.find("Node", name)
    assert node is not None
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    for pod in store.of("Pod"):
        if pod["spec"].get("nodeName") == name and is_active(pod):
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"


def clear_lost_nodes(store: Store) -> None:
    """Pods on a lost node that is said to be out of service are removed without it, as the pod collector does."""
    for node in store.of("Node"):
        if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or []) and not _is_ready(node):
            for pod in store.of("Pod"):
                if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                    store.drop("Pod", pod["metadata"]["name"])


def _is_ready(node: Object) -> bool:
    return bool(node["status"]["conditions"][0]["status"] == "True")


def advance(store: Store, pod: Object) -> None:
    """One round of a pod: placed, its images pulled, and run."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"]:
        return
    if status["phase"] == "Running":
        _run(store, pod)
    elif status["phase"] == "Pending":
        node, reason = _place(store, pod)
        scheduled = {"type": "PodScheduled", "status": "True" if node else "False", "message": reason}
        status["conditions"] = [scheduled]
        if node is None:
            store.event(pod, "FailedScheduling", reason)
            return
        pod["spec"]["nodeName"] = node
        pod.setdefault("_start", store.clock)
        waits = _not_started(store, pod)
        state = {"waiting": dict(zip(("reason", "message"), waits, strict=True))} if waits else {"running": {}}
        status["containerStatuses"] = [{"state": state}]
        if not waits:
            status["phase"] = "Running"
            pod["_left"] = store.lasts.get(labels_of(pod)["app.kubernetes.io/component"], 1)


def _run(store: Store, pod: Object) -> None:
    pod["_left"] -= 1
    if store.clock - pod["_start"] > pod["spec"].get("activeDeadlineSeconds", float("inf")):
        pod["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
        pod["_code"] = 137
    elif pod["_left"] <= 0 and pod["metadata"].get("ownerReferences", [{"kind": ""}])[0]["kind"] == "Job":
        codes = store.ends.get(labels_of(pod)["app.kubernetes.io/component"], [])
        pod["_code"] = codes.pop(0) if codes else 0
        pod["status"]["phase"] = "Failed" if pod["_code"] else "Succeeded"


def _place(store: Store, pod: Object) -> tuple[str | None, str]:
    """A node for the pod, or the scheduler's reason why there is none."""
    if node := pod["spec"].get("nodeName"):
        return node, ""
    start = f"0/{len(store.nodes)} nodes are available: "
    if lack := _unbound(store, pod):
        return None, start + lack
    wanted = pod["spec"].get("nodeSelector", {})
    fitting = [each for each in store.of("Node") if wanted.items() <= labels_of(each).items() and _is_ready(each)]
    if not fitting:
        reason = f"{len(store.nodes)} node(s) didn't match Pod's node affinity/selector."
        return None, start + reason + NOT_PREEMPTED
    for node in fitting:
        name = node["metadata"]["name"]
        here = [each for each in store.of("Pod") if each["spec"].get("nodeName") == name and is_active(each)]
        if sum(map(gpus, here)) + gpus(pod) <= int(node["status"]["allocatable"][GPU]):
            return name, ""
    return None, f"{start}{len(fitting)} Insufficient {GPU}.{NOT_PREEMPTED}"


def _unbound(store: Store, pod: Object) -> str:
    for volume in pod["spec"].get("volumes", []):
        name = volume.get("persistentVolumeClaim", {}).get("claimName")
        claim = store.find("PersistentVolumeClaim", name)
        if name and claim is None:
            return f'persistentvolumeclaim "{name}" not found.'
        if claim and claim.get("status", {}).get("phase") != "Bound":
            return f"pod has unbound immediate PersistentVolumeClaims.{NOT_PREEMPTED}"
    return ""


def _not_started(store: Store, pod: Object) -> tuple[str, str] | None:
    """The kubelet's reason and message while a container does not start."""
    for volume in pod["spec"].get("volumes", []):
        name = volume.get("configMap", {}).get("name")
        if name and not store.find("ConfigMap", name):
            start = f'MountVolume.SetUp failed for volume "{volume["name"]}" : '
            store.event(pod, "FailedMount", f'{start}configmap "{name}" not found')
            return "ContainerCreating", ""
    for container in pod["spec"]["containers"]:
        image = container["image"]
        registry = image.partition("/")[0]
        if registry in store.private and not pod["spec"]["imagePullSecrets"]:
            denied = "pull access denied, repository does not exist or may require authorization"
            return "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {denied}'
        for source in container.get("envFrom", []):
            if not store.find("ConfigMap", name := source["configMapRef"]["name"]):
                return "CreateContainerConfigError", f'configmap "{name}" not found'
    return None
