"""Manifests and values for Kubernetes have no field that Kubernetes, the Dask operator or the chart does not know."""

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.deploy.kubernetes_schemas import (
    VALUES,
    kind_validator,
    kubernetes_versions,
    misspelled,
    operator_validator,
    values_validator,
)
from tests.support.deploy_files import DEPLOY, KUBERNETES, chart_folder, containers, load

POLICIES = ("network-policy.yaml", "network-policy-store.yaml")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def validator(name: str, document: Any, version: str) -> jsonschema.Draft202012Validator:
    if name == "helm-values.yaml":
        return values_validator(version)
    if name in KUBERNETES:
        return operator_validator(document["kind"], version)
    return kind_validator(document["kind"], version)


def test_every_file_is_checked() -> None:
    named = {*KUBERNETES, *POLICIES, "client.yaml", "helm-values.yaml"}
    assert {path.name for path in (DEPLOY / "kubernetes").iterdir()} == named


@pytest.mark.parametrize("age", ["oldest", "newest"])
@pytest.mark.parametrize("name", [*KUBERNETES, *POLICIES, "client.yaml", "helm-values.yaml"])
def test_the_schemas_take_the_files(name: str, age: str) -> None:
    version = dict(zip(("oldest", "newest"), kubernetes_versions(), strict=True))[age]
    for document in documents(name):
        validator(name, document, version).validate(document)


@pytest.mark.parametrize("name", [*KUBERNETES, *POLICIES, "client.yaml", "helm-values.yaml"])
def test_a_misspelled_field_is_refused(name: str) -> None:
    version = kubernetes_versions()[-1]
    for document in documents(name):
        check = validator(name, document, version)
        changed = list(misspelled(document))
        assert len(changed) >= 8
        assert [place for place, other in changed if check.is_valid(other)] == []


def test_the_client_has_the_volume_of_the_workers_and_the_name_of_the_scheduler() -> None:
    client, cluster = load("kubernetes/client.yaml"), load("kubernetes/cluster.yaml")
    workers = cluster["spec"]["worker"]["spec"]
    assert client["spec"]["volumes"] == workers["volumes"][:1]
    assert client["spec"]["containers"][0]["volumeMounts"] == workers["containers"][0]["volumeMounts"][:1]
    assert client["spec"]["securityContext"] == workers["securityContext"]
    assert client["spec"]["containers"][0]["image"] == workers["containers"][0]["image"]
    scheduler = f"tcp://{cluster['metadata']['name']}-scheduler:8786"
    assert client["spec"]["containers"][0]["env"] == [{"name": "SCHEDULER", "value": scheduler}]
    values = load("kubernetes/helm-values.yaml")["worker"]
    assert values["mounts"]["volumes"][:1] == client["spec"]["volumes"]
    assert values["mounts"]["volumeMounts"][:1] == client["spec"]["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("name", KUBERNETES)
def test_all_pods_of_a_manifest_have_one_image(name: str) -> None:
    assert len({one["image"] for one in containers(load(f"kubernetes/{name}"))}) == 1


def test_helm_values_name_one_image_and_no_notebook() -> None:
    values = load("kubernetes/helm-values.yaml")
    images = [values[role]["image"] for role in ("scheduler", "worker")]
    assert len({f"{image['repository']}:{image['tag']}" for image in images}) == 1
    assert values["jupyter"]["enabled"] is False
    volumes = values["worker"]["mounts"]
    assert [v["name"] for v in volumes["volumes"]] == [m["name"] for m in volumes["volumeMounts"]]


def test_the_schema_of_the_values_has_the_fields_that_the_chart_reads() -> None:
    text = "".join(path.read_text() for path in (chart_folder() / "templates").glob("*.yaml"))
    read = set(re.findall(r"\.Values\.((?:scheduler|worker|webUI)\.\w+)", text))
    schema = json.loads(VALUES.read_text())["properties"]
    ours = {f"{role}.{field}" for role in ("scheduler", "worker", "webUI") for field in schema[role]["properties"]}
    unread = {"scheduler.name", "worker.name", "webUI.name"}  # the chart declares them, and names pods by their roles
    assert ours - read <= unread
    assert read <= ours
