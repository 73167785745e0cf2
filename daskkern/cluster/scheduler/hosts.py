"""The order of workers by host: ranks that exchange most are neighbours, and neighbours share a host."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Iterable

from distributed.comm.addressing import get_address_host


def grouped_by_host(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses with those of one host after each other; hosts, and the workers of one, stay in order."""
    hosts: dict[str, list[str]] = {}
    for address in addresses:
        hosts.setdefault(get_address_host(address), []).append(address)
    return tuple(address for group in hosts.values() for address in group)
