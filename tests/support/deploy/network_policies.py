"""What NetworkPolicies of Kubernetes allow, worked out from their text as the plug-in of a network would."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A pod with its labels, in a namespace; or an address outside of Kubernetes."""

    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = "default"
    namespace_labels: dict[str, str] = field(default_factory=dict)
    address: str = ""


def allows(policies: Iterable[Any], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Return whether the policies, all of the namespace "default", let `source` open a connection to `target`."""
    found = list(policies)
    out = _direction(found, "Egress", source, target, port, protocol)
    return out and _direction(found, "Ingress", target, source, port, protocol)


def _direction(policies: list[Any], kind: str, pod: Peer, other: Peer, port: int, protocol: str) -> bool:
    specs = [policy["spec"] for policy in policies if kind in policy["spec"]["policyTypes"]]
    ours = [spec for spec in specs if _is_ours(pod) and _selected(spec["podSelector"], pod.labels)]
    if not ours:
        return True  # a pod that no policy selects is open
    side = {"Ingress": "from", "Egress": "to"}[kind]
    rules = [rule for spec in ours for rule in spec.get(kind.lower(), [])]
    return any(_peers(rule.get(side), other) and _ports(rule.get("ports"), port, protocol) for rule in rules)


def _is_ours(pod: Peer) -> bool:
    return pod.namespace == "default" and not pod.address


def _peers(peers: list[Any] | None, other: Peer) -> bool:
    return not peers or any(_peer(peer, other) for peer in peers)


def _peer(peer: Any, other: Peer) -> bool:
    if "ipBlock" in peer:
        return bool(other.address) and _within(peer["ipBlock"], other.address)
    if other.address:
        return False
    if "namespaceSelector" in peer:
        names = {"kubernetes.io/metadata.name": other.namespace, **other.namespace_labels}
        return _selected(peer["namespaceSelector"], names) and _selected(peer.get("podSelector", {}), other.labels)
    return other.namespace == "default" and _selected(peer["podSelector"], other.labels)


def _within(block: Any, address: str) -> bool:
    one = ipaddress.ip_address(address)
    inside = [one in ipaddress.ip_network(net) for net in (block["cidr"], *block.get("except", []))]
    return inside[0] and not any(inside[1:])


def _ports(ports: list[Any] | None, port: int, protocol: str) -> bool:
    if not ports:
        return True
    return any(one.get("protocol", "TCP") == protocol and one.get("port", port) == port for one in ports)


def _selected(selector: Any, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In", "other operators are not worked out here"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True
