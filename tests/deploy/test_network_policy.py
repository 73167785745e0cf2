"""The network policies of Kubernetes let in and out what kubernetes.md says, for every cluster it has a command for."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.support.deploy.network_policies import Peer, allows
from tests.support.deploy_files import DEPLOY, KUBERNETES, chart_folder, load, package_folder

FOLDER = DEPLOY / "kubernetes"
LABELS = {"operator": ("dask.org/cluster-name", "dask.org/component"), "chart": ("release", "component")}
OPERATOR = Peer({"app.kubernetes.io/name": "dask-kubernetes-operator"}, "dask-operator")
PROMETHEUS = Peer({"app": "prometheus"}, "monitoring", {"dask-dashboard": "allowed"})
NAMES = Peer({"k8s-app": "kube-dns"}, "kube-system")
STORE, INSIDE, CREDENTIALS = Peer(address="52.216.1.1"), Peer(address="10.0.0.7"), Peer(address="169.254.169.254")
STRANGERS = {
    "a pod of the namespace": Peer({"app": "web"}),
    "a pod of another cluster": Peer({"dask.org/cluster-name": "x", "release": "x", "dask.org/component": "worker"}),
    "a pod with these labels elsewhere": Peer(
        {"dask.org/cluster-name": "daskkern", "dask.org/component": "client", "release": "daskkern"}, "other"
    ),
    "a pod beside the operator": Peer({"app": "web"}, "dask-operator"),
    "an address outside": STORE,
}


def documents(*names: str) -> list[Any]:
    return [one for name in names for one in yaml.safe_load_all((FOLDER / name).read_text())]


def printed(command: str) -> list[Any]:
    """Return the policies that a command of kubernetes.md hands to kubectl."""
    made, _, rest = command.partition(" | ")
    assert rest == "kubectl apply -f -"
    run = subprocess.run(["bash", "-c", made], capture_output=True, text=True, check=True, cwd=DEPLOY.parent)
    return list(yaml.safe_load_all(run.stdout))


def commands() -> tuple[str, str]:
    found = re.findall(r"^sed .*network-policy.yaml .*$", (DEPLOY / "kubernetes.md").read_text(), re.MULTILINE)
    other_name, chart = found
    assert "s/daskkern/daskkern-fit/" in other_name
    return other_name, chart


def policies(manager: str) -> list[Any]:
    return documents("network-policy.yaml") if manager == "operator" else printed(commands()[1])


def pod(manager: str, component: str, name: str = "daskkern") -> Peer:
    cluster, role = LABELS[manager]
    return Peer({cluster: name, role: component})


@pytest.mark.parametrize("manager", LABELS)
def test_pods_of_one_cluster_reach_its_scheduler_and_its_workers(manager: str) -> None:
    rules = policies(manager)
    for component in ("scheduler", "worker", "job-runner", "client"):
        assert allows(rules, pod(manager, component), pod(manager, "worker"), 40123)
        assert allows(rules, pod(manager, component), pod(manager, "scheduler"), 8786)
        assert not allows(rules, pod(manager, component), pod(manager, "scheduler"), 8787)
        assert not allows(rules, pod(manager, component), pod(manager, "worker"), 40123, "UDP")
        for closed in ("client", "job-runner"):
            assert not allows(rules, pod(manager, component), pod(manager, closed), 40123)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("manager", LABELS)
def test_nobody_else_does(manager: str, stranger: str) -> None:
    for component in ("scheduler", "worker", "job-runner", "client"):
        for port in (8786, 8787, 40123, 22):
            assert not allows(policies(manager), STRANGERS[stranger], pod(manager, component), port)


@pytest.mark.parametrize("manager", LABELS)
def test_who_sees_the_dashboard(manager: str) -> None:
    rules, scheduler = policies(manager), pod(manager, "scheduler")
    for allowed in (PROMETHEUS, Peer({"dask-dashboard": "allowed"}), OPERATOR):
        assert allows(rules, allowed, scheduler, 8787)
        assert not allows(rules, allowed, pod(manager, "worker"), 8787)
        assert allows(rules, allowed, scheduler, 8786) == (allowed == OPERATOR)
    assert not allows(rules, Peer({"app": "prometheus"}, "monitoring"), scheduler, 8787)


@pytest.mark.parametrize("manager", LABELS)
@pytest.mark.parametrize("component", ["scheduler", "worker", "job-runner", "client"])
def test_what_a_pod_reaches(manager: str, component: str) -> None:
    rules, store, source = policies(manager), documents("network-policy-store.yaml"), pod(manager, component)
    for protocol in ("UDP", "TCP"):
        assert allows(rules, source, NAMES, 53, protocol)
        assert allows(rules, source, Peer(address="169.254.20.10"), 53, protocol)
    for other in (STORE, INSIDE, CREDENTIALS, Peer({"app": "web"}), Peer({"app": "web"}, "kube-system")):
        assert not any(allows(rules, source, other, port) for port in (53, 80, 443, 8786))
    if manager == "operator":
        assert allows(rules + store, source, STORE, 443)
        assert allows(rules + store, source, Peer(address="2606:4700::1"), 443)
        assert not allows(rules + store, source, STORE, 80)
        for other in (INSIDE, CREDENTIALS, Peer(address="fd00:ec2::254")):
            assert not allows(rules + store, source, other, 443)


@pytest.mark.parametrize("name", KUBERNETES)
def test_policies_of_every_cluster_select_its_pods(name: str) -> None:
    cluster = load(f"kubernetes/{name}")["metadata"]["name"]
    other_name, _ = commands()
    rules = printed(other_name.replace("daskkern-fit", cluster))
    assert allows(rules, pod("operator", "client", cluster), pod("operator", "worker", cluster), 40123)
    assert not allows(rules, pod("operator", "client", "x"), pod("operator", "worker", cluster), 40123)
    assert len({rule["metadata"]["name"] for rule in rules}) == len(rules)
    assert all(rule["metadata"]["name"].startswith(cluster) for rule in rules)


def test_the_client_has_the_labels_of_both() -> None:
    client = Peer(load("kubernetes/client.yaml")["metadata"]["labels"])
    for manager in LABELS:
        assert allows(policies(manager), client, pod(manager, "scheduler"), 8786)
        assert not allows(policies(manager), pod(manager, "worker"), client, 8786)


def test_labels_are_those_that_the_operator_and_the_chart_give() -> None:
    operator = (package_folder("dask-kubernetes") / "operator/controller/controller.py").read_text()
    for component in ("scheduler", "worker", "job-runner"):
        assert f'"dask.org/component": "{component}"' in operator
    assert operator.count('"dask.org/cluster-name": cluster_name') >= 4
    helm = package_folder("dask-kubernetes") / "operator/deployment/helm/dask-kubernetes-operator"
    assert "name: dask-kubernetes-operator\n" in (helm / "Chart.yaml").read_text()
    assert "app.kubernetes.io/name: {{ include" in (helm / "templates/_helpers.tpl").read_text()


def test_labels_are_those_of_the_chart() -> None:
    templates = chart_folder() / "templates"
    for component in ("scheduler", "worker"):
        pods = (templates / f"dask-{component}-deployment.yaml").read_text().split("template:\n    metadata:")[1]
        assert re.search(rf"release: {{{{ \.Release\.Name \| quote }}}}\n +component: {component}\n", pods)
