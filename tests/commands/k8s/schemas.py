"""Strict schemas: built-in kinds by kubernetes-validate, custom ones by their CRDs' own schema and CEL rules."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import jsonschema
import kubernetes_validate
import yaml

from tests.commands.k8s.manifests import Object

VERSION = "1.37"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CEL = celpy.Environment()
HERE = Path(__file__).parent / "crds"
NOT_SCHEMA = ("description", "default", "example")


def problems(each: Object, crds: Path) -> list[str]:
    """What an API server would refuse. A kind that neither Kubernetes nor a CRD has is a problem too."""
    kind = (each["apiVersion"], each["kind"])
    if kind in load_crds(crds):
        wrong = [f"{e.json_path}: {e.message[:160]}" for e in strict(crds, kind).iter_errors(each)]
        return [*wrong, *broken_rules(rules(crds, kind), each)]
    return list(_built_in(json.dumps(each, sort_keys=True)))


@cache
def _built_in(text: str) -> tuple[str, ...]:
    """As `problems`, of a kind of Kubernetes itself: overlays have most objects in common, and each takes a while."""
    each = json.loads(text)
    try:
        kubernetes_validate.validate(each, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return (f"{'.'.join(map(str, error.path))}: {error.message}",)
    except kubernetes_validate.SchemaNotFoundError:
        return (f"{each['apiVersion']} {each['kind']}: neither Kubernetes {VERSION} nor a CRD has this kind",)
    return ()


@cache
def load_crds(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(apiVersion, kind) to the served schema, of a folder's CRDs and of the ones beside the tests."""
    found = {}
    for path in [*folder.glob("*.yaml"), *HERE.glob("*.yaml")]:
        crd = yaml.load(path.read_text(), LOADER)["spec"]
        for version in crd["versions"]:
            if version["served"]:
                found[f"{crd['group']}/{version['name']}", crd["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


@cache
def strict(crds: Path, kind: tuple[str, str]) -> jsonschema.Draft7Validator:
    """The validator of a custom kind."""
    return jsonschema.Draft7Validator(as_json_schema(load_crds(crds)[kind]))


@cache
def rules(crds: Path, kind: tuple[str, str]) -> list[tuple[tuple[str, ...], str, celpy.Runner]]:
    """A custom kind's CEL rules: where, in words, and as a program; those about a change (`oldSelf`) need a server."""
    return [
        (path, rule.get("message", rule["rule"]), CEL.program(CEL.compile(rule["rule"])))
        for path, rule in _rules(load_crds(crds)[kind])
        if "oldSelf" not in rule["rule"]
    ]


def as_json_schema(schema: Any, top: bool = True) -> Any:
    """A structural schema as JSON Schema in which unknown fields fail, as `kubectl --validate=strict` has it."""
    if isinstance(schema, list):
        return [as_json_schema(each, False) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _converted(key, value) for key, value in schema.items() if _is_schema(key)}
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in out:
        out["type"] = [*([out["type"]] if isinstance(out["type"], str) else out["type"]), "null"]
    if "properties" in out and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    if top:
        out["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
    return out


def _is_schema(key: str) -> bool:
    return not key.startswith("x-kubernetes") and key not in NOT_SCHEMA


def _converted(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: as_json_schema(each, False) for name, each in value.items()}
    return as_json_schema(value, False)


def broken_rules(programs: list[tuple[tuple[str, ...], str, celpy.Runner]], each: Object) -> Iterator[str]:
    """CEL rules that the object breaks."""
    for path, words, program in programs:
        for part in _at(each, path):
            if not program.evaluate({"self": celpy.json_to_cel(part)}):
                yield f"{'.'.join(path)}: {words}"


def _rules(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield path, rule
    for name, part in schema.get("properties", {}).items():
        yield from _rules(part, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _rules(schema["items"], (*path, "[]"))


def _at(part: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield part
    elif path[0] == "[]":
        for item in part or []:
            yield from _at(item, path[1:])
    elif isinstance(part, dict) and path[0] in part:
        yield from _at(part[path[0]], path[1:])
