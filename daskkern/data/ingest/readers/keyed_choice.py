"""The choice of features, targets and weights among the entries of a file of named arrays."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from daskkern.data.ingest.readers.annotations import Annotation, annotation, texts
from daskkern.data.ingest.readers.tables import Request
from daskkern.errors import DataError

Node: TypeAlias = Any
"""A group or an array of h5py or Zarr, which share no types."""

USUAL_FEATURES = ("X", "data", "features")
_TARGETS = ("y", "target", "targets", "labels")


def features_of(root: Node, request: Request, path: Path) -> str:
    """Return the name of the features: as requested, or a usual one. Raises DataError when the entry is missing."""
    name = request.features or _usual(root, USUAL_FEATURES, path, "--features KEY")
    _node(root, name, path)
    return name


def targets_of(root: Node, request: Request, is_annotated: bool, path: Path) -> tuple[str, ...]:
    """Return the names of the target arrays: as requested, as in the ``like`` store, or a usual one."""
    targets = request.target
    if targets is None and request.like is not None and is_annotated:
        known = tuple(f"obs/{name}" for name in request.like.target_names or ())
        return known if all(name in root for name in known) else ()
    if targets is None:
        if is_annotated:
            shown = ", ".join(sorted(name for name in map(str, root["obs"]) if not name.startswith("_"))[:12])
            raise DataError(f"which column of obs of {path} is the target? Pass --target NAME; there are {shown}")
        return (_usual(root, _TARGETS, path, "--target KEY"),)
    return tuple(f"obs/{name}" if is_annotated and f"obs/{name}" in root else name for name in targets)


def weight_of(request: Request, is_annotated: bool) -> tuple[str, ...]:
    """Return the name of the array of weights, if any."""
    if request.weight is None:
        return ()
    return (f"obs/{request.weight}",) if is_annotated else (request.weight,)


def column_of(root: Node, name: str, path: Path) -> Annotation:
    """Return a target or weight column. Raises DataError when the entry is missing."""
    return annotation(_node(root, name, path), name, str(path))


def feature_names_of(root: Node) -> tuple[str, ...] | None:
    """Return the names of the features of an AnnData file: the index of ``var``."""
    if "var" not in root:
        return None
    key = root["var"].attrs.get("_index", "_index")
    if key not in root["var"]:
        return None
    return tuple(texts(root["var"][key], 0, int(root["var"][key].shape[0])).tolist())


def kept_features(names: tuple[str, ...] | None, request: Request, path: Path) -> tuple[int, ...] | None:
    """Return the indices of the features to keep: those of the ``like`` store, or those that are not dropped.

    None when all are kept, in order. Raises DataError for a name that the file lacks.
    """
    if request.like is not None:
        return _kept_like(names, request.like.feature_names, path)
    return _kept_without(names, request.drop, path)


def _kept_without(names: tuple[str, ...] | None, drop: Sequence[str], path: Path) -> tuple[int, ...] | None:
    """Return the indices of the features that are not dropped; None when all are kept."""
    if not drop:
        return None
    if names is None:
        raise DataError(f"--drop names columns, but the arrays of {path} have no column names; leave it out")
    unknown = sorted(set(drop) - set(names))
    if unknown:
        raise DataError(f"{path} has no feature {unknown[0]!r} to drop; check the name")
    kept = tuple(j for j, name in enumerate(names) if name not in set(drop))
    if not kept:
        raise DataError(f"no feature of {path} is left; drop fewer")
    return kept


def _kept_like(names: tuple[str, ...] | None, wanted: tuple[str, ...] | None, path: Path) -> tuple[int, ...] | None:
    """Return the indices of the features of another store in a file; None when they are all of them, in order."""
    if names is None or wanted is None or names == wanted:
        return None
    places = defaultdict[str, list[int]](list)
    for j, name in enumerate(names):
        places[name].append(j)
    needed = Counter(wanted)
    for name, count in needed.items():
        if not places[name]:
            raise DataError(f"{path} has no feature {name!r}, which the training rows had")
        if len(places[name]) != count:
            raise DataError(
                f"{path} has {len(places[name])} features {name!r}, where the training rows had {count}, so which is "
                "which cannot be told; give features names of their own, in anndata with var_names_make_unique()"
            )
    return tuple(places[name].pop(0) for name in wanted)


def _usual(root: Node, names: Sequence[str], path: Path, option: str) -> str:
    found = [name for name in names if name in root]
    if not found:
        entries = ", ".join(sorted(map(str, root))[:12]) or "nothing"
        raise DataError(f"{path} holds {entries}, but no {names[0]!r}; name the array with {option}")
    return found[0]


def _node(root: Node, name: str, path: Path) -> Node:
    if name not in root:
        raise DataError(f"{path} has no entry {name!r}; it has {', '.join(sorted(map(str, root))[:12])}")
    return root[name]
