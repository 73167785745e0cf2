"""Claims on checkpoints: which driver and which gang may write; writes of superseded ones do not count.

Every driver of a fit - a process that runs it, or a detached fit's task - claims the checkpoint with a number of its
own, one more than any before. A claim is a group ``driver-NNNNNN`` that only one process can create: local files are
created exclusively, object stores create an object only where there is none (``If-None-Match: *``). On a local disk the
folder comes first: the claim counts once its metadata is in it. Among the gangs of one driver the number that the
scheduler gave to the task of rank 0 decides; it rises from gang to gang.
"""

import json
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zarr
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync

from daskkern.data.remote.stores import open_zarr, public
from daskkern.errors import StoreError, SupersededError

_CLAIM = re.compile(r"driver-(\d{6,})")
_COMMIT = re.compile(r"commit-(?:(\d{6,})-(\d{9,})-(\d{12,})-)?(\d+)")
_TRIES = 100


@dataclass(frozen=True, order=True)
class CommitGeneration:
    """The generation of a commit: the number of its driver, and of the driver's gang. Later ones are larger.

    Checkpoints of daskkern before 0.2 record none: theirs is (0, 0).
    """

    driver: int = 0
    gang: int = 0

    def __str__(self) -> str:
        return f"{self.driver}.{self.gang}"


@dataclass(frozen=True, order=True)
class CommitName:
    """The name of a commit's group: its generation, the steps before it, and a serial number. Later ones are larger."""

    generation: CommitGeneration
    steps: int
    serial: int

    def __str__(self) -> str:
        driver, gang = self.generation.driver, self.generation.gang
        return f"commit-{driver:06d}-{gang:09d}-{self.steps:012d}-{self.serial:06d}"

    @classmethod
    def parse(cls, name: str) -> "CommitName | None":
        """Return the name of a commit, also one of earlier versions, ``commit-N``; None for any other name."""
        found = _COMMIT.fullmatch(name)
        if found is None:
            return None
        driver, gang, steps, serial = (int(part or 0) for part in found.groups())
        return cls(CommitGeneration(driver, gang), steps, serial)


@dataclass(frozen=True, order=True)
class StoredCommit:
    """A commit in a checkpoint: its name, as parsed and as stored; whether it is complete; whether it counts.

    A commit does not count when its driver has no claim: another fit has removed the checkpoint that it belongs to.
    """

    name: CommitName
    stored: str
    is_complete: bool
    counts: bool

    @property
    def is_valid(self) -> bool:
        """Whether it can be read and may be continued from."""
        return self.is_complete and self.counts


@dataclass(frozen=True)
class Claim:
    """The claim of a driver: where, its number, a random name that distinguishes it from all others, and its run."""

    location: str = field(repr=False)
    number: int
    name: str
    run: str = ""

    def check(self) -> bool:
        """Return whether this is the last claim; False without a checkpoint.

        Raises
        ------
        SupersededError
            When another driver has claimed the checkpoint since.
        """
        try:
            claims = claims_of(open_zarr(self.location))
        except FileNotFoundError:
            return False
        if claims and (max(claims), claims[max(claims)]) != (self.number, self.name):
            raise SupersededError(superseded(self.location))
        return bool(claims)

    def renewed(self) -> "Claim":
        """Claim the checkpoint again, where only other drivers of the same run have claimed it since.

        Raises
        ------
        SupersededError
            When another run has.
        FileNotFoundError
            Without a checkpoint.
        """
        group = open_zarr(self.location, "r+")
        for number in claims_of(group):
            if number > self.number and attributes_in(group, f"driver-{number:06d}").get("run") != self.run:
                raise SupersededError(superseded(self.location))
        return claim(group, self.location, self.run)

    def withdraw(self) -> None:
        """Remove the claim, so that the one before it is the last again."""
        with suppress(FileNotFoundError):
            group = open_zarr(self.location, "a")
            if claims_of(group).get(self.number) == self.name:
                remove_name(group, f"driver-{self.number:06d}")


def superseded(location: str) -> str:
    """Return the sentence for a writer whose checkpoint has been taken over."""
    return f"a later run of this fit has taken over its checkpoint {public(location)}; leave it to that run"


def claim(group: zarr.Group, location: str, run: str = "") -> Claim:
    """Claim the checkpoint `group` at `location` for a new driver of `run`.

    Raises
    ------
    StoreError
        When the storage does not keep what is written.
    """
    name = secrets.token_hex(8)
    for _ in range(_TRIES):
        known = [*_numbers_in(group).values(), *(commit.name.generation.driver for commit in commits_of(group))]
        number = max(known, default=0) + 1
        _create(group, f"driver-{number:06d}", {"name": name, "run": run})
        if claims_of(group).get(number) == name:
            return Claim(location, number, name, run)
    raise StoreError(f"the checkpoint {location} does not keep what is written to it; choose another place for it")


def claims_of(group: zarr.Group) -> dict[int, str]:
    """Return the names of all complete claims of a checkpoint by their numbers."""
    found = {number: attributes_in(group, stored).get("name") for stored, number in _numbers_in(group).items()}
    return {number: str(name) for number, name in found.items() if name is not None}


def _numbers_in(group: zarr.Group) -> dict[str, int]:
    """Return the numbers of the claims of a checkpoint, also of those that are being written, by what is stored."""
    found = {stored: _CLAIM.fullmatch(stored) for stored in names_in(group)}
    return {stored: int(match[1]) for stored, match in found.items() if match}


def commits_of(group: zarr.Group) -> list[StoredCommit]:
    """Return all commits of a checkpoint in the order of their names."""
    claims, found = claims_of(group), []
    for stored in names_in(group):
        name = CommitName.parse(stored)
        if name is None:
            continue
        attributes, driver = attributes_in(group, stored), name.generation.driver
        counts = driver == 0 or (driver in claims and attributes.get("driver") == claims[driver])
        found.append(StoredCommit(name, stored, attributes.get("complete") is True, counts))
    return sorted(found)


def names_in(group: zarr.Group) -> list[str]:
    """Return the names in a group, of whatever is there: a killed writer leaves what is not a group yet."""
    store, path = group.store, group.path

    async def names() -> list[str]:
        return [name.strip("/") async for name in store.list_dir(path)]

    return sync(names())


def remove_name(group: zarr.Group, name: str) -> None:
    """Remove all that is stored under `name`."""
    sync(group.store.delete_dir(_key(group, name)))


def _create(group: zarr.Group, name: str, attributes: dict[str, Any]) -> None:
    """Create a group in `group` with these attributes, unless there is one."""
    sync(group.store.set_if_not_exists(f"{_key(group, name)}/zarr.json", _group_of(attributes)))


def put_attributes(group: zarr.Group, name: str, attributes: dict[str, Any]) -> None:
    """Create or replace the group `name` in `group`, in one piece, with these attributes."""
    sync(group.store.set(f"{_key(group, name)}/zarr.json", _group_of(attributes)))


def _group_of(attributes: dict[str, Any]) -> Buffer:
    text = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes})
    return default_buffer_prototype().buffer.from_bytes(text.encode())


def attributes_in(group: zarr.Group, name: str) -> dict[str, Any]:
    """Return the attributes of a group in `group`; none where there is no group, or one that cannot be read."""
    found = sync(group.store.get(f"{_key(group, name)}/zarr.json", default_buffer_prototype()))
    try:
        attributes = None if found is None else json.loads(found.to_bytes())["attributes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def _key(group: zarr.Group, name: str) -> str:
    return f"{group.path}/{name}".lstrip("/")
