"""Rules: whatever a manifest names is there, be it a program, a command, an option, a benchmark or a path in a pod."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import typer

from restrain_openrlhf.commands.main import app
from restrain_openrlhf.commands.reference import parse_shard
from restrain_openrlhf.data.benchmarks import BENCHMARKS
from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.evaluation.job import PROTOCOLS, TEMPLATES
from test_time.cli import app as test_time_app
from tests.commands.k8s.manifests import Object, Pod, of_kind, pods

Configs = Mapping[str, Mapping[str, str]]
FROM_THE_SYSTEM = {"sleep"}
# Ray hides the GPUs from an entrypoint that reserves none.
WITH_GPUS = ["env", "-u", "CUDA_VISIBLE_DEVICES"]


@cache
def programs() -> Mapping[str, Any]:
    """The command lines that a manifest may use, as click commands."""
    from huggingface_hub.cli.hf import app as hf

    return {"restrain": typer.main.get_command(app), "test-time": typer.main.get_command(test_time_app), "hf": hf}


def names_resolve(objects: list[Object]) -> Iterator[str]:
    """Every command line parses, and its benchmarks, shards and templates are known."""
    for pod, words in command_lines(objects):
        yield from (f"{pod.name}: {problem}" for problem in unresolved(words))


def command_lines(objects: list[Object]) -> Iterator[tuple[Pod, list[str]]]:
    """The words of every container that has a command, and of every RayJob's entrypoint, with the pod that runs them.

    Ray's own containers have none: KubeRay writes their command. `test-time` runs on the worker, training on the head.
    """
    for each in pods(objects):
        for container in each.containers:
            if words := [*container.get("command", []), *container.get("args", [])]:
                yield each, [word.replace("$(JOB_COMPLETION_INDEX)", "0") for word in words]
        spec = each.owner["spec"]
        if each.role == ("worker" if "entrypointResources" in spec else "head"):
            yield each, shlex.split(spec["entrypoint"])


def unresolved(words: Sequence[str]) -> Iterator[str]:
    """What in one command line the real parsers or registries do not know."""
    program, *rest = words[len(WITH_GPUS) :] if list(words[: len(WITH_GPUS)]) == WITH_GPUS else words
    if program in FROM_THE_SYSTEM:
        return
    try:
        values = _parsed(program, rest)
    except Exception as error:  # noqa: BLE001 - typer and the hub's program each bring a click of their own
        yield f"{program} {' '.join(rest[:2])}: {error!r}"
        return
    for name, check in CHECKS.items():
        if values.get(name) is not None:
            try:
                check(values[name])
            except (RestrainError, LookupError) as error:
                yield f"{program} {rest[0]}: {name} {values[name]!r}: {error!r}"


def _parsed(program: str, words: list[str]) -> Mapping[str, Any]:
    """The options and arguments by name. Raises LookupError for an unknown command, click's errors for wrong words."""
    command, rest = command_of(program, list(words))
    found: Mapping[str, Any] = command.make_context(program, rest).params
    return found


def command_of(program: str, words: list[str]) -> tuple[Any, list[str]]:
    """The click command that the first words name, and the others. Raises LookupError for an unknown one."""
    command = programs()[program]
    while hasattr(command, "commands"):
        name, *words = words or [""]
        if name not in command.commands:
            raise LookupError(f"{program} has no command {name!r}")
        command = command.commands[name]
        # The hub's program imports a command when it is run.
        command = command.materialize() if hasattr(command, "materialize") else command
    return command, words


def _known_benchmarks(text: str) -> None:
    for word in text.split(","):
        BENCHMARKS[word]


def _takes_a_problem(template: str) -> None:
    if "PROBLEM" not in template.replace("$$", "$").format("PROBLEM"):
        raise LookupError(template)


CHECKS: Mapping[str, Callable[[Any], object]] = {
    "benchmarks": _known_benchmarks,
    "input_template": _takes_a_problem,
    "protocol": PROTOCOLS.__getitem__,
    "shard": parse_shard,
    "template": lambda name: _takes_a_problem(name) if "{}" in name else name == "auto" or TEMPLATES[name],
}


def paths_are_mounted(objects: list[Object]) -> Iterator[str]:
    """Every path in a pod's words and environment lies in a volume of that pod; one that is written, in a writable one.

    A file of a ConfigMap or Secret is one of its keys.
    """
    configs: Configs = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    for pod, words in command_lines(objects):
        for word in words:
            option, _, value = word.rpartition("=")
            yield from _unmounted(pod, configs, value, option == "--out")
    for pod in pods(objects):
        for name, value in _environment(pod, configs):
            # Read, and only where there is a model to read; the words of `prefetch` write it.
            if name != "HF_HUB_CACHE":
                yield from _unmounted(pod, configs, value, True)


def _environment(pod: Pod, configs: Configs) -> Iterator[tuple[str, str]]:
    for container in pod.containers:
        for source in container.get("envFrom", []):
            yield from configs[source["configMapRef"]["name"]].items()
        yield from ((each["name"], each["value"]) for each in container.get("env", []) if "value" in each)


def _unmounted(pod: Pod, configs: Configs, path: str, written: bool) -> Iterator[str]:
    if not path.startswith("/"):
        return
    volumes = {each["name"]: each for each in pod.spec.get("volumes", [])}
    mounts = [each for container in pod.containers for each in container.get("volumeMounts", [])]
    holding = [each for each in mounts if PurePosixPath(path).is_relative_to(each["mountPath"])]
    if not holding:
        yield f"{pod.name}: {path} is in no volume"
    for mount in holding:
        volume, inside = volumes.get(mount["name"], {}), str(PurePosixPath(path).relative_to(mount["mountPath"]))
        if written and mount.get("readOnly"):
            yield f"{pod.name}: {path} is written to, and {mount['mountPath']} is read-only"
        if "configMap" in volume and inside not in configs[volume["configMap"]["name"]]:
            yield f"{pod.name}: {path} is no key of {volume['configMap']['name']}"
        if "secret" in volume and inside not in {item["path"] for item in volume["secret"]["items"]}:
            yield f"{pod.name}: {path} is no item of {volume['secret']['secretName']}"
