"""Dask dataframes as Dask arrays of features, one lazily encoded block for each partition."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed
from sklearn.base import BaseEstimator

from daskkern.arrays import Array, HostArray
from daskkern.data.schema.encoding import ColumnEncoding, Encoding, UnknownChoice, feature_names_of
from daskkern.errors import DataError
from daskkern.estimators.frame_codes import encoded, frame_encoding
from daskkern.estimators.parameters import unknown_choice
from daskkern.training.feeding.cluster_blocks import BlockSource


def fit_blocks(estimator: BaseEstimator, X: Any, *, reset: bool) -> tuple[da.Array, Encoding]:
    """Return the features of a dask dataframe and their encoding, and set ``feature_names_in_``.

    The encoding is that of the model of earlier rows, without `reset`; else all partitions are computed to find it.
    """
    model = None if reset else getattr(estimator, "model_", None)
    encoding = frame_encoding(X, unknown_choice(estimator)) if model is None else model.encoding
    assert encoding is not None
    estimator.feature_names_in_ = np.array([column.name for column in encoding], dtype=object)
    return lazy_features(X, encoding, unknown_choice(estimator)), encoding


def labelled_blocks(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, *, reset: bool
) -> tuple[da.Array, Any, Any, Encoding]:
    """Return features, targets, weights, and the encoding of a dask dataframe; see :func:`fit_blocks`.

    Raises DataError without targets.
    """
    if y is None:
        raise DataError("got a dask dataframe without targets; give y, or name its column with target=")
    features, encoding = fit_blocks(estimator, X, reset=reset)
    return features, lazy_column(y), lazy_column(sample_weight), encoding


def lazy_features(X: Any, encoding: Encoding | None, unknown: UnknownChoice | None = None) -> da.Array:
    """Return the features (n, d) float64 of a dask dataframe; partitions are computed once for their lengths.

    Chunks of a frame of cuDF whose columns are numbers without gaps are arrays on its GPU.
    """
    known = encoding or tuple(ColumnEncoding(name) for name in X.columns)
    if hasattr(X._meta, "to_cupy") and all(column.is_plain for column in known):
        names = [column.name for column in known]
        return _blocks(X, partial(_on_gpu, names=names), (len(names),), _on_gpu(X._meta, names))
    features = partial(encoded, encoding=known, unknown=unknown)
    width = len(feature_names_of(known))
    return _blocks(X, features, (width,), np.empty((0, width)))


def lazy_column(y: Any) -> Any:
    """Return the values of a dask series (n,) or dataframe (n, t) as a dask array; others as they are."""
    if not is_dask_collection(y) or not hasattr(y, "partitions") or isinstance(y, da.Array):
        return y
    return _blocks(y, _values, (len(y.columns),) if y.ndim == 2 else (), _on_host(y._meta))


def _blocks(frame: Any, function: Callable[[Any], Array], width: tuple[int, ...], meta: Array) -> da.Array:
    """Return ``function(partition)``, arrays like `meta`, of all partitions that have rows as one array."""
    lengths, made = frame.map_partitions(len).compute(), delayed(function, pure=True)
    parts = zip(frame.to_delayed(), lengths, strict=True)
    return da.concatenate([da.from_delayed(made(part), shape=(int(n), *width), meta=meta) for part, n in parts if n])


def _on_gpu(part: Any, names: list[str]) -> Array:
    """Return columns of numbers of a frame of cuDF as an array (m, d) float64 on its GPU."""
    missing = [name for name in names if name not in part.columns]
    if missing:
        raise DataError(f"X has no column {missing[0]!r}, which the model was trained with; add it")
    return part[names].to_cupy(dtype=np.dtype(np.float64))


def _values(part: Any) -> HostArray:
    values = _on_host(part)
    texts = values.dtype.kind == "O" and all(isinstance(value, str) for value in values.ravel())
    return values.astype(str) if texts else values


def _on_host(part: Any) -> HostArray:
    return np.asarray(part.to_pandas() if hasattr(part, "to_pandas") else part)  # of cuDF


def named_blocks(source: BlockSource, encoding: Encoding) -> BlockSource:
    """Return the source with the names and the encoding of its features."""
    return replace(source, info=replace(source.info, feature_names=feature_names_of(encoding), encoding=encoding))
