"""The record of finished parts of a job, from which another process continues after a kill."""

import io
import json
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.remote.objects import get_object, put_object, remove_object
from daskkern.data.schema.schema import ClassLabel

SECONDS = 2.0
"""Between two records."""

PartResult: TypeAlias = tuple[dict[str, HostArray], tuple[ClassLabel, ...]]
"""The state of the writer of a part, and the labels by code in it."""


@dataclass(frozen=True)
class RecordPlace:
    """Where a record lies: a file `name` in a folder, or below a URL."""

    folder: Path | str
    name: str

    def read(self) -> bytes | None:
        """Return the record; None when there is none."""
        if isinstance(self.folder, str):
            return get_object(self.folder, self.name)
        path = self.folder / self.name
        return path.read_bytes() if path.is_file() else None

    def write(self, value: bytes) -> None:
        """Replace the record, atomically."""
        if isinstance(self.folder, str):
            put_object(self.folder, self.name, value)
            return
        temporary = self.folder / f"{self.name}.new"
        temporary.write_bytes(value)
        temporary.replace(self.folder / self.name)

    def remove(self) -> None:
        """Remove the record, if there is one."""
        if isinstance(self.folder, str):
            remove_object(self.folder, self.name)
        else:
            (self.folder / self.name).unlink(missing_ok=True)


def as_npz(arrays: Mapping[str, HostArray]) -> bytes:
    """Return named arrays in the format of ``.npz`` files. Names may contain slashes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
    return target.getvalue()


class PartRecord:
    """Finished parts by number, saved every two seconds at most.

    Parameters
    ----------
    place : RecordPlace or None
        None records nothing.
    bounds : sequence of (int, int)
        Rows of the parts; a record of other parts is not taken up.
    """

    def __init__(self, place: RecordPlace | None, bounds: Sequence[tuple[int, int]]) -> None:
        self._place, self.bounds = place, tuple(bounds)
        self.found = False
        """Whether there was a record of these parts, once taken up."""
        self._results: dict[int, PartResult] = {}
        self._last = 0.0

    def take_up(self) -> Mapping[int, PartResult]:
        """Return the results of the parts that an earlier process finished."""
        found = None if self._place is None else self._place.read()
        if found is not None:
            with np.load(io.BytesIO(found), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            head = json.loads(str(arrays.pop("head", '{"bounds": []}')))  # none in a record of one pass
            self.found = [tuple(bound) for bound in head["bounds"]] == list(self.bounds)
            if self.found:
                for number, labels in head["labels"].items():
                    prefix = f"{number}/"
                    state = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
                    self._results[int(number)] = (state, tuple(labels))
        return dict(self._results)

    def keep(self, number: int, result: PartResult) -> None:
        """Record a finished part."""
        self._results[number] = result
        if time.monotonic() - self._last >= SECONDS:
            self.save()

    def withdraw(self, numbers: Iterable[int]) -> None:
        """Record that some parts are about to be changed: after a kill they are written again."""
        for number in numbers:
            self._results.pop(number, None)
        self.save()

    def save(self) -> None:
        """Write the record now. An empty one says that the work has begun, and is taken up."""
        if self._place is None:
            return
        labels = {number: list(found[1]) for number, found in self._results.items()}
        head = json.dumps({"bounds": self.bounds, "labels": labels})
        named = {f"{n}/{key}": array for n, (state, _) in self._results.items() for key, array in state.items()}
        self._place.write(as_npz({**named, "head": np.array(head)}))
        self._last = time.monotonic()
