"""Models on disk: a Zarr group with a versioned schema, read as untrusted input and without pickle."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices
from daskkern.calibration import Calibration
from daskkern.data.remote.stores import open_zarr
from daskkern.data.rows.csr import csr_rows
from daskkern.data.schema.encoding import Encoding, encoding_from_json, feature_names_of
from daskkern.data.schema.rank_tables import tables_from_json
from daskkern.data.schema.schema import ClassLabel, Scaling, check_format
from daskkern.data.storage.checksums import checksum_of
from daskkern.data.storage.sizes import check_chunks
from daskkern.data.transactions.atomic import atomic_group
from daskkern.errors import DataError, ModelError, SpecError, StoreError
from daskkern.kernels import from_spec
from daskkern.losses import parse_loss
from daskkern.models.kernel_model import KernelModel
from daskkern.models.write_errors import unsaved

FORMAT = "daskkern-model"
VERSION = 1
_CHUNK_BYTES = 16 << 20
_SCORES, _CHECKSUM = "calibration_scores", "crc32"
_PARTS = ("data", "indices", "indptr")
_KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


def save_model(model: KernelModel, path: str | Path, *, check: Callable[[], None] = lambda: None) -> None:
    """Write `model` to a new Zarr group at `path`, a folder or URL, that appears only when complete.

    An older model at `path` is replaced; anything else there is never touched. `check` is called right before the model
    appears; what it raises leaves the older one. Raises ModelError where it cannot be written.
    """
    try:
        with atomic_group(path, kind=FORMAT, overwrite=True, check=check) as group:
            _write_points(group, model.points)
            _write(group, "coef", model.coef)
            if model.calibration is not None:
                _write(group, _SCORES, model.calibration.scores)
            group.update_attributes(_attributes(model))
    except OSError as error:
        raise unsaved(str(path), error, model.nbytes) from error


def load_model(source: str | Path | zarr.Group) -> KernelModel:
    """Read a model that :func:`save_model` wrote.

    Parameters
    ----------
    source : str, Path or zarr.Group
        A folder, a URL, or an open group.

    Raises
    ------
    ModelError
        When it is missing, not a daskkern model, of another schema, incomplete or damaged; the message is one sentence.
    """
    where = source.name if isinstance(source, zarr.Group) else str(source)
    group = source if isinstance(source, zarr.Group) else _open(where)
    attributes = group.attrs.asdict()
    try:
        check_format(attributes, FORMAT, VERSION, where)
        return _model(group, attributes, where)
    except ModelError:
        raise
    except (StoreError, SpecError, DataError) as error:
        raise ModelError(
            str(error) if isinstance(error, StoreError) else f"the model {where} is damaged: {error}"
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"the model {where} is damaged: {error}; save it again") from None


def is_model(place: str | Path) -> bool:
    """Return whether a daskkern model is at `place`, complete or not."""
    try:
        return bool(open_zarr(str(place)).attrs.get("format") == FORMAT)
    except Exception:  # Zarr and its stores raise many types for other things than a group
        return False


def _open(where: str) -> zarr.Group:
    try:
        return open_zarr(where)
    except StoreError as error:
        raise ModelError(str(error)) from None
    except FileNotFoundError:
        raise ModelError(f"there is no model at {where}; give the path that 'fit --out' or save() wrote") from None
    except Exception as error:  # Zarr and its stores raise many types for other things than a group
        raise ModelError(f"{where} cannot be opened as a model: {error}") from None


def _write(group: zarr.Group, name: str, values: HostArray) -> None:
    width = int(np.prod(values.shape[1:], dtype=np.int64))
    rows = max(1, _CHUNK_BYTES // max(1, values.itemsize * width))
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=(max(1, min(rows, values.shape[0])), *values.shape[1:]),
        dtype=values.dtype,
        attributes={_CHECKSUM: checksum_of(values)},
        compressors=None,
        config={"write_empty_chunks": True},  # a missing chunk means a damaged model
    )
    for part in slices(values.shape[0], rows):
        array[part] = values[part]


def _write_points(group: zarr.Group, points: Any) -> None:
    """Write dense points as one array, and CSR points as a group in the layout of AnnData."""
    if not is_sparse(points):
        _write(group, "points", points)
        return
    parts = group.create_group("points")
    for name in _PARTS:
        part = getattr(points, name)
        kept = part if name == "data" else part.astype(np.int64)
        _write(parts, name, kept)
    parts.update_attributes(
        {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [int(n) for n in points.shape]}
    )


def _attributes(model: KernelModel) -> dict[str, Any]:
    kind = None if model.classes is None else type(model.classes[0]).__name__
    return {
        "version": VERSION,
        "kernel": model.kernel.spec(),
        "loss": model.loss,
        "task": model.task,
        "classes": None if model.classes is None else {"kind": kind, "labels": list(model.classes)},
        "scaling": model.scaling.to_json(),
        "target_shift": _floats(model.target_shift),
        "target_scale": _floats(model.target_scale),
        "single_target": model.single_target,
        "scores_each": model.scores_each,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "target_names": None if model.target_names is None else list(model.target_names),
        "encoding": None if model.encoding is None else [column.to_json() for column in model.encoding],
        "provenance": dict(model.provenance),
        "calibration": None if model.calibration is None else model.calibration.to_json(),
    }


def _model(group: zarr.Group, attributes: Mapping[str, Any], where: str) -> KernelModel:
    points, coef = _points(group, where), _array(group, "coef", where)
    loss, task = attributes["loss"], attributes["task"]
    if ("classification" if task == "multilabel" else task) not in parse_loss(loss).tasks:
        raise ModelError(f"the model {where} is damaged: its loss {loss!r} does not fit task {task!r}")
    classes = _classes(attributes["classes"], where)
    n_classes = 2 if task == "multilabel" else len(classes or ())  # of each label
    names, targets = attributes["feature_names"], attributes.get("target_names")
    each = int(attributes.get("scores_each", 1))  # older models have none
    if each < 1 or coef.shape[1] % each:
        raise ModelError(f"the model {where} is damaged: {coef.shape[1]} columns of coefficients, {each} an output")
    outputs = coef.shape[1] // each
    kernel = from_spec(attributes["kernel"])
    features = kernel.features_of(points)
    model = KernelModel(
        kernel=kernel,
        points=points,
        coef=coef,
        loss=loss,
        task=task,
        classes=classes,
        scaling=_scaling(attributes["scaling"]),
        target_shift=_vector(attributes["target_shift"], outputs),
        target_scale=_vector(attributes["target_scale"], outputs),
        feature_names=None if names is None else tuple(map(str, names)),
        single_target=bool(attributes["single_target"]),
        scores_each=each,
        provenance=dict(attributes["provenance"]),
        target_names=None if targets is None else tuple(map(str, targets)),
        encoding=_encoding(attributes.get("encoding"), features, where),
        calibration=_calibration(
            group, attributes.get("calibration"), n_classes, outputs, parse_loss(loss).heads, where
        ),
    )
    width = 0 if model.scaling.kind == "none" else features
    if len(model.scaling.shift) != width or len(model.scaling.scale) != width:
        raise ModelError(f"the model {where} is damaged: its scaling is not for {features} features")
    if (task == "classification") != (classes is not None):
        raise ModelError(f"the model {where} is damaged: a {task} model with classes {classes!r}")
    if classes is not None and outputs not in ({1, 2} if len(classes) == 2 else {len(classes)}):
        raise ModelError(f"the model {where} is damaged: {outputs} outputs for {len(classes)} classes")
    return model


def _calibration(
    group: zarr.Group, value: Any, n_classes: int, outputs: int, heads: int, where: str
) -> Calibration | None:
    if value is None:  # also of models written before the attribute existed
        return None
    try:
        scores = _array(group, _SCORES, where)
        return Calibration.from_json(value, scores, n_classes, outputs // heads, signed=heads > 1)
    except ModelError as error:
        raise ModelError(
            f"the model {where} is damaged: {str(error).removeprefix(f'the model {where} is damaged: ')}"
        ) from None


def _scaling(value: Mapping[str, Any]) -> Scaling:
    bend = value.get("bend", ())  # older models have none
    shift, scale, bends = (tuple(map(float, part)) for part in (value["shift"], value["scale"], bend))
    return Scaling(value["kind"], shift, scale, bends, tables_from_json(value))


def _encoding(value: Any, n_features: int, where: str) -> Encoding | None:
    if value is None:  # also of models written before the attribute existed
        return None
    encoding = encoding_from_json(value)
    if encoding is None or len(feature_names_of(encoding)) != n_features:
        raise ModelError(f"the model {where} is damaged: its encoding is not for {n_features} features")
    return encoding


def _points(group: zarr.Group, where: str) -> Any:
    parts = group.get("points")
    if not isinstance(parts, zarr.Group):
        return _array(group, "points", where)
    arrays = []
    for name in _PARTS:
        array = parts.get(name)
        kinds = (np.float32, np.float64) if name == "data" else (np.int64,)
        if not isinstance(array, zarr.Array) or array.ndim != 1 or array.dtype not in kinds:
            raise ModelError(f"the model {where} is damaged: its sparse points have no array {name!r} as expected")
        if check_chunks(array, f"{name!r} of the model {where}") is not None:
            raise ModelError(f"the model {where} is incomplete: chunks of {name!r} are missing; copy or save it again")
        arrays.append(_values(array, name, where))
    if not np.isfinite(arrays[0]).all():
        raise ModelError(f"the model {where} is damaged: 'points' holds NaN or infinity")
    shape: Any = parts.attrs.asdict()["shape"]
    data, indices, indptr = arrays
    rows = csr_rows(data, indices, indptr, int(shape[1]), f"the model {where}")
    if rows.shape[0] != shape[0]:
        raise ModelError(f"the model {where} is damaged: {rows.shape[0]} points were found, {shape[0]} announced")
    return rows


def _array(group: zarr.Group, name: str, where: str) -> HostArray:
    array = group.get(name)
    if not isinstance(array, zarr.Array) or array.ndim != 2 or array.dtype not in (np.float32, np.float64):
        raise ModelError(f"the model {where} is damaged: it has no table of floats called {name!r}")
    if check_chunks(array, f"{name!r} of the model {where}") is not None:
        raise ModelError(f"the model {where} is incomplete: chunks of {name!r} are missing; copy or save it again")
    values = _values(array, name, where)
    if not np.isfinite(values).all():
        raise ModelError(f"the model {where} is damaged: {name!r} holds NaN or infinity")
    return values


def _values(array: Any, name: str, where: str) -> HostArray:
    """Return an array as it was written; its checksum is not there in older models."""
    values = np.asarray(array[...])
    known = array.attrs.get(_CHECKSUM)
    if known is not None and known != checksum_of(values):
        raise ModelError(
            f"the model {where} is damaged: {name!r} is not what was written (its checksum differs); copy it again, or "
            "save it again"
        )
    return values


def _classes(value: Any, where: str) -> tuple[ClassLabel, ...] | None:
    if value is None:
        return None
    kind, labels = _KINDS.get(value["kind"]), value["labels"]
    if kind is None or not isinstance(labels, list) or not labels:
        raise ModelError(f"the model {where} is damaged: its classes {value!r} cannot be read")
    if kind is float:
        labels = [float(label) for label in labels]
    if any(type(label) is not kind for label in labels) or len(set(labels)) != len(labels):
        raise ModelError(f"the model {where} is damaged: its classes are not distinct values of one kind")
    return tuple(labels)


def _vector(value: Any, width: int) -> HostArray | None:
    if value is None:
        return None
    vector = np.asarray(value, np.float64)
    if vector.shape != (width,) or not np.isfinite(vector).all():
        raise ValueError(f"got {value!r:.60}; expected a vector of {width} finite numbers")
    return vector


def _floats(value: HostArray | None) -> list[float] | None:
    return None if value is None else [float(number) for number in value]
