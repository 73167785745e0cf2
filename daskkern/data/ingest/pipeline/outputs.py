"""Checks of the output stores, made before anything is read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from daskkern.data.ingest.pipeline.resume import is_written
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, VALIDATION, SplitSettings
from daskkern.data.ingest.pipeline.split_and_shuffle import wants_shuffle
from daskkern.data.ingest.readers.tables import Parts
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.schema import FORMAT, SOURCE_KEY
from daskkern.data.storage.store import open_store
from daskkern.data.transactions.atomic import check_destination
from daskkern.errors import SpecError, StoreError

PathLike: TypeAlias = str | os.PathLike[str]


def check_outputs(outputs: Mapping[int, PathLike], overwrite: bool) -> None:
    """Check that the stores of the parts may be written, and differ."""
    names: dict[str, str] = {}
    for part, path in outputs.items():
        check_destination(os.fspath(path), kind=FORMAT, overwrite=overwrite)
        name = {TRAIN: "training", TEST: "test", VALIDATION: "validation"}[part]
        other = names.setdefault(os.fspath(path).rstrip("/") if is_url(path) else os.path.realpath(path), name)
        if other != name:
            raise SpecError(f"{path} was given for both {other} and {name} rows; name two stores")


def is_begun(outputs: Mapping[int, PathLike], shuffle: bool | None) -> bool:
    """Return whether some stores exist and some do not, as after a kill between two of them.

    Or whether the only store is at a URL, where its rows still have to be shuffled.
    """
    if len(outputs) == 1 and is_url(outputs[TRAIN]):
        return awaits_shuffle(os.fspath(outputs[TRAIN]), shuffle)
    there = [_exists(path) for path in outputs.values()]
    return any(there) and not all(there)


def _exists(path: PathLike) -> bool:
    """Return whether there is something in a folder, or a complete store at a URL."""
    if not is_url(path):
        return Path(path).exists()
    try:
        open_store(path)
    except StoreError:
        return False
    return True


def awaits_shuffle(url: str, shuffle: bool | None, key: str | None = None) -> bool:
    """Return whether a store was written part by part, maybe with this `key`, and its sorted rows not yet shuffled."""
    if shuffle is not None:
        return False
    try:
        store = open_store(url)
    except StoreError:
        return False
    found = store.group.attrs.get(SOURCE_KEY)  # a shuffled store has none
    return found is not None and key in (None, found) and wants_shuffle(None, store)


def check_begun(outputs: Mapping[int, PathLike], key: str | None, of_parts: str | None) -> None:
    """Raise StoreError unless the existing stores were made by an ingestion with these keys: of all of it, of parts."""
    for path in outputs.values():
        place = os.fspath(path) if is_url(path) else Path(path)
        if _exists(path) and not is_written(place, key) and not is_written(place, of_parts):
            check_destination(os.fspath(path), kind=FORMAT, overwrite=False)


def check_split(parts: Parts, split: SplitSettings, outputs: Mapping[int, PathLike]) -> None:
    """Check that every part of the rows has a store, and every store a part."""
    for part, share, option, name in (
        (TEST, split.test, "--split", "test"),
        (VALIDATION, split.validation, "--split-validation", "validation"),
    ):
        given = part == TEST and parts.test is not None
        if share is None and part in outputs and not given:
            lacks = f": {parts.train.source} has no X_test" if part == TEST else ""
            raise SpecError(f"no rows would go to {outputs[part]}{lacks}; use {option} 0.2")
        if share is not None and part not in outputs:
            raise SpecError(f"got a {name} part of {share:g} without a store for its rows; add --out-{name} STORE")
        if share is not None and given:
            raise SpecError(f"{parts.train.source} already has a test part (X_test); leave out --split")
