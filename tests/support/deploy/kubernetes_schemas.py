"""Schemas of Kubernetes, of the Dask operator and of the chart's values, which manifests are checked against."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.support.deploy_files import package_folder

_KINDS = {
    "Pod": "io.k8s.api.core.v1.Pod",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_DEFINITIONS = "/api/_definitions.json"
_CRDS = "operator/deployment/helm/dask-kubernetes-operator/crds"
_FREE = {"matchLabels", "labels", "requests", "limits", "selector"}  # their keys are names that users choose
VALUES = Path(__file__).parents[2] / "deploy" / "helm-values.schema.json"


def kubernetes_versions() -> list[str]:
    """Return the oldest and the newest version of Kubernetes whose schemas kubernetes-validate has, such as v1.37.0."""
    folder = package_folder("kubernetes-validate") / "kubernetes-json-schema"
    found = [path.name.removesuffix("-local-strict") for path in folder.glob("v*-local-strict")]
    ordered = sorted(found, key=lambda name: tuple(map(int, re.findall(r"\d+", name))))
    return [ordered[0], ordered[-1]]


@cache
def definitions(version: str) -> Any:
    """Return all schemas of a version of Kubernetes, which refuse unknown fields."""
    folder = package_folder("kubernetes-validate") / "kubernetes-json-schema" / f"{version}-local-strict"
    return DRAFT202012.create_resource(json.loads((folder / "_definitions.json").read_text()))


def _validator(schema: Any, version: str) -> jsonschema.Draft202012Validator:
    registry = Registry().with_resource(_DEFINITIONS, definitions(version))
    return jsonschema.Draft202012Validator(schema, registry=registry)


def of(name: str) -> dict[str, str]:
    """Return a reference to a schema of Kubernetes, by its full name."""
    return {"$ref": f"{_DEFINITIONS}#/$defs/{name}"}


def kind_validator(kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Return what checks a whole document of Kubernetes' own, such as a Pod."""
    needed = {"required": ["apiVersion", "kind", "metadata", "spec"]}
    return _validator({"allOf": [of(_KINDS[kind]), needed]}, version)


@cache
def values_validator(version: str) -> jsonschema.Draft202012Validator:
    """Return what checks the values of the Dask chart; what the chart passes on is checked as Kubernetes will."""
    return _validator(json.loads(VALUES.read_text()), version)


@cache
def operator_validator(kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Return what checks a document of the Dask operator, whose pods and services Kubernetes has to take as well."""
    crd = _definition(kind)
    (served,) = crd["versions"]
    pod, service = {"spec": of("io.k8s.api.core.v1.PodSpec")}, of("io.k8s.api.core.v1.ServiceSpec")
    cluster = _nested({"worker": _nested(pod), "scheduler": _nested({**pod, "service": service})})
    spec = cluster if kind == "DaskCluster" else _nested({"job": _nested(pod), "cluster": _nested({"spec": cluster})})
    document = {
        "type": "object",
        "properties": {
            "apiVersion": {"const": f"{crd['group']}/{served['name']}"},
            "kind": {"const": crd["names"]["kind"]},
            "metadata": of(_META),
            "spec": strict(served["schema"]["openAPIV3Schema"]["properties"]["spec"]),
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
    }
    return _validator({"allOf": [document, _nested({"spec": spec})]}, version)


@cache
def _definition(kind: str) -> Any:
    text = (package_folder("dask-kubernetes") / _CRDS / f"{kind.lower()}.yaml").read_text()
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]  # 470 kB: C takes a tenth of the time


def _nested(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def strict(schema: Any) -> Any:
    """Return a schema of a resource definition as one of JSON that refuses fields which Kubernetes would drop."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(part) for key, part in schema.items()}
    if made.pop("nullable", False) and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    if "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def misspelled(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the document once for each of its fields, with that field misspelled; and the path of the field."""
    for place in list(_fields(document, ())):
        changed = copy.deepcopy(document)
        holder = changed
        for step in place[:-1]:
            holder = holder[step]
        holder[f"{place[-1]}z"] = holder.pop(place[-1])
        yield "/".join(map(str, place)), changed


def _fields(part: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    steps = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in steps:
        if isinstance(part, dict) and not (place and place[-1] in _FREE):
            yield (*place, key)
        yield from _fields(value, (*place, key))
