"""Models on disk: a Zarr group with a versioned schema, read as hostile input and without pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from daskkern.arrays import HostArray
from daskkern.backend.tiles import slices
from daskkern.data.atomic import atomic_group
from daskkern.data.schema import ClassLabel, Scaling, check_format
from daskkern.errors import ModelError, SpecError, StoreError
from daskkern.kernels import from_spec
from daskkern.losses import LOSSES
from daskkern.models.kernel_model import KernelModel

FORMAT = "daskkern-model"
VERSION = 1
_CHUNK_BYTES = 16 << 20
_KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


def save_model(model: KernelModel, path: str | Path, *, overwrite: bool = True) -> None:
    """Write `model` to a new Zarr group at `path`, under a temporary name that is renamed when whole.

    An older model at `path` is replaced when `overwrite` is true; anything else there is never touched.
    """
    with atomic_group(path, kind=FORMAT, overwrite=overwrite) as group:
        _write(group, "points", model.points)
        _write(group, "coef", model.coef)
        group.update_attributes(_attributes(model))


def load_model(source: str | Path | zarr.Group) -> KernelModel:
    """Read a model that :func:`save_model` wrote.

    Raises
    ------
    ModelError
        When it is missing, no daskkern model, of another schema, half-written or damaged: one sentence.
    """
    where = source.name if isinstance(source, zarr.Group) else str(source)
    group = source if isinstance(source, zarr.Group) else _open(where)
    attributes = group.attrs.asdict()
    try:
        check_format(attributes, FORMAT, VERSION, where)
        return _model(group, attributes, where)
    except ModelError:
        raise
    except (StoreError, SpecError) as error:
        raise ModelError(
            f"the model {where} is damaged: {error}" if isinstance(error, SpecError) else str(error)
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"the model {where} is damaged: {error}; save it again") from None


def _open(where: str) -> zarr.Group:
    try:
        return zarr.open_group(where, mode="r")
    except FileNotFoundError:
        raise ModelError(f"there is no model at {where}; give the path that 'fit --out' or save() wrote") from None
    except Exception as error:  # Zarr and its stores raise many types for what is no group
        raise ModelError(f"{where} cannot be opened as a model: {error}") from None


def _write(group: zarr.Group, name: str, values: HostArray) -> None:
    rows = max(1, _CHUNK_BYTES // max(1, values.itemsize * values.shape[1]))
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=(min(rows, values.shape[0]), values.shape[1]),
        dtype=values.dtype,
        compressors=None,
    )
    for part in slices(values.shape[0], rows):
        array[part] = values[part]


def _attributes(model: KernelModel) -> dict[str, Any]:
    kind = None if model.classes is None else type(model.classes[0]).__name__
    return {
        "version": VERSION,
        "kernel": model.kernel.spec(),
        "loss": model.loss,
        "task": model.task,
        "classes": None if model.classes is None else {"kind": kind, "labels": list(model.classes)},
        "scaling": {
            "kind": model.scaling.kind,
            "shift": list(model.scaling.shift),
            "scale": list(model.scaling.scale),
        },
        "target_shift": _floats(model.target_shift),
        "target_scale": _floats(model.target_scale),
        "single_target": model.single_target,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "provenance": dict(model.provenance),
    }


def _model(group: zarr.Group, attributes: Mapping[str, Any], where: str) -> KernelModel:
    points, coef = _array(group, "points", where), _array(group, "coef", where)
    loss, task = attributes["loss"], attributes["task"]
    if loss not in LOSSES or task not in ("classification", "regression"):
        raise ModelError(f"the model {where} is damaged: loss {loss!r} and task {task!r} are not known")
    classes = _classes(attributes["classes"], where)
    scaling = attributes["scaling"]
    names = attributes["feature_names"]
    model = KernelModel(
        kernel=from_spec(attributes["kernel"]),
        points=points,
        coef=coef,
        loss=loss,
        task=task,
        classes=classes,
        scaling=Scaling(scaling["kind"], tuple(map(float, scaling["shift"])), tuple(map(float, scaling["scale"]))),
        target_shift=_vector(attributes["target_shift"], coef.shape[1]),
        target_scale=_vector(attributes["target_scale"], coef.shape[1]),
        feature_names=None if names is None else tuple(map(str, names)),
        single_target=bool(attributes["single_target"]),
        provenance=dict(attributes["provenance"]),
    )
    width = 0 if model.scaling.kind == "none" else points.shape[1]
    if len(model.scaling.shift) != width or len(model.scaling.scale) != width:
        raise ModelError(f"the model {where} is damaged: its scaling is not for {points.shape[1]} features")
    if (task == "classification") != (classes is not None):
        raise ModelError(f"the model {where} is damaged: a {task} model with classes {classes!r}")
    if classes is not None and coef.shape[1] not in ({1, 2} if len(classes) == 2 else {len(classes)}):
        raise ModelError(f"the model {where} is damaged: {coef.shape[1]} outputs for {len(classes)} classes")
    return model


def _array(group: zarr.Group, name: str, where: str) -> HostArray:
    array = group.get(name)
    if not isinstance(array, zarr.Array) or array.ndim != 2 or array.dtype not in (np.float32, np.float64):
        raise ModelError(f"the model {where} is damaged: it has no table of floats called {name!r}")
    if array.nchunks_initialized != array.nchunks:
        raise ModelError(f"the model {where} is incomplete: chunks of {name!r} are missing; copy or save it again")
    values = np.asarray(array[...])
    if not np.isfinite(values).all():
        raise ModelError(f"the model {where} is damaged: {name!r} holds NaN or infinity")
    return values


def _classes(value: Any, where: str) -> tuple[ClassLabel, ...] | None:
    if value is None:
        return None
    kind, labels = _KINDS.get(value["kind"]), value["labels"]
    if kind is None or not isinstance(labels, list) or len(labels) < 2:
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
        raise ValueError(f"a vector of {width} finite numbers was expected, found {value!r:.60}")
    return vector


def _floats(value: HostArray | None) -> list[float] | None:
    return None if value is None else [float(number) for number in value]
