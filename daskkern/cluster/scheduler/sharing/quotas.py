"""Quotas: how many workers, and how many fits, the fits of one user may hold at once.

The owner of a cluster sets them in the configuration of Dask that the scheduler reads, under ``daskkern.quotas``. A
user is who a client says that it is: Dask authenticates connections (TLS), not users.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daskkern.errors import SpecError

_WHERE = "daskkern.quotas in the scheduler's Dask configuration"


@dataclass(frozen=True)
class Quota:
    """The most that the fits of one user may hold at once; None means unlimited.

    Attributes
    ----------
    workers : int or None
        Workers of all running fits together. One that two of the fits share counts twice.
    fits : int or None
        Running fits.
    """

    workers: int | None = None
    fits: int | None = None

    def refusal(self, user: str, n_ranks: int | None) -> str:
        """Return why a fit on `n_ranks` workers can never run under this quota, "" if it can."""
        if self.fits == 0 or self.workers == 0:
            return f"the cluster's owner allows user '{user}' no fits; ask for a quota"
        if self.workers is not None and n_ranks is not None and n_ranks > self.workers:
            return (
                f"got a request for {n_ranks} workers with the quota of {self.workers} for user '{user}'; request at "
                f"most {self.workers} (--ranks), or ask the cluster's owner for more"
            )
        return ""

    def excess(self, user: str, wanted: int, workers: int, fits: int) -> str:
        """Return what a fit on `wanted` workers waits for while others of `user` hold so much; "" for nothing."""
        if self.fits is not None and fits >= self.fits:
            return f"waiting for the quota of user '{user}': {self.fits} of {self.fits} fits run"
        if self.workers is not None and workers + wanted > self.workers:
            return (
                f"waiting for the quota of user '{user}': {workers} of {self.workers} workers are in use, and this "
                f"fit needs {wanted}"
            )
        return ""


@dataclass(frozen=True)
class Quotas:
    """The quotas of a cluster: of the users that are named, and of each other user."""

    each: Quota = Quota()
    users: Mapping[str, Quota] = field(default_factory=dict)

    def of(self, user: str) -> Quota:
        """Return the quota of `user`."""
        return self.users.get(user, self.each)


def quotas_of(config: Any) -> Quotas:
    """Return the quotas of a configuration: ``workers``, ``fits``, and ``users`` with the same by name.

    An entry that a named user lacks is that of all users. None, or no entry, means unlimited.

    Raises
    ------
    SpecError
        For other keys and values.
    """
    values = _mapping(config, _WHERE)
    each = _quota(values, {"workers", "fits", "users"}, Quota(), _WHERE)
    named = _mapping(values.get("users"), f"users of {_WHERE}")
    users = {
        str(user): _quota(_mapping(entry, f"user '{user}' of {_WHERE}"), {"workers", "fits"}, each, f"user '{user}'")
        for user, entry in named.items()
    }
    return Quotas(each, users)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(f"got {value!r:.50} as {where}; expected keys and values such as workers: 8")
    return value


def _quota(values: Mapping[str, Any], known: set[str], default: Quota, where: str) -> Quota:
    unknown = [str(key) for key in values if key not in known]
    if unknown:
        raise SpecError(f"got {', '.join(unknown)} in {where}; known are {', '.join(sorted(known))}")
    return Quota(_limit(values, "workers", default.workers, where), _limit(values, "fits", default.fits, where))


def _limit(values: Mapping[str, Any], name: str, default: int | None, where: str) -> int | None:
    value = values.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise SpecError(f"got {name}: {value!r:.50} in {where}; expected a whole number of 0 or more, or null")
    return value
