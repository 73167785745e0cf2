"""Rows for a classifier: one label each, or several binary labels, from arrays, Dask arrays and stores."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskkern.arrays import HostArray
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.rows.csr import is_sparse
from daskkern.errors import DataError, SpecError
from daskkern.estimators.array_inputs import labelled_arrays, labelled_rows, multilabel_arrays, numeric_rows
from daskkern.estimators.direct_inputs import direct_source, is_direct
from daskkern.estimators.frame_blocks import labelled_blocks, named_blocks
from daskkern.estimators.inputs import is_lazy, is_store, lazy_source, only_store, store_source
from daskkern.estimators.parameters import loss_of, unknown_choice
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.cluster_blocks import BlockSource
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import StoreSource


def class_source(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any,
    known: HostArray | None = None,
    *,
    reset: bool = True,
    roles: RowRoles | None = None,
) -> tuple[RowSource, HostArray]:
    """Return rows as a source, and the classes, of several labels their numbers.

    DataError for classes other than `known`.
    """
    roles = RowRoles() if roles is None else roles
    if is_direct(X, roles):
        if known is not None:
            raise DataError(f"got partial_fit on X of type {type(X).__name__}; give arrays, or call fit")
        direct = direct_source(estimator, X, y, sample_weight, roles, "classification")
        return direct, np.array(direct.info.classes)
    if is_store(X):
        return _store(X, y, sample_weight, known)
    if is_dask_frame(X):
        features, y, weight, encoding = labelled_blocks(estimator, X, y, sample_weight, reset=reset)
        named, classes = class_source(estimator, features, y, weight, known)
        assert isinstance(named, BlockSource)
        return named_blocks(named, encoding), classes
    if _is_table(y):
        several = np.arange(int(np.shape(y)[1]))
        if is_lazy(X):
            return lazy_source(X, y.toarray() if is_sparse(y) else y, sample_weight, "regression")[0], several
        return multilabel_arrays(estimator, X, y, sample_weight, reset=reset), several
    if is_lazy(X):
        blocks, found = lazy_source(X, y, sample_weight, "classification", known)
        assert found is not None
        return blocks, found
    return labelled_arrays(estimator, X, y, sample_weight, known, reset=reset)


def known_classes(estimator: Any, classes: Any) -> HostArray | None:
    """Return the classes of a fitted estimator, or the given ones for a new model, ascending."""
    given = None if classes is None else np.unique(np.asarray(classes))
    if getattr(estimator, "_carried", None) is None:
        return given
    mine: HostArray = estimator.classes_
    if given is not None and not np.array_equal(given, mine):
        raise DataError(f"got classes={classes!r}, but the model has {mine.tolist()}; leave them out")
    return mine


def takes_several_labels(estimator: BaseEstimator) -> bool:
    """Return whether rows may have several labels with its loss: not where that makes classes exclude each other."""
    try:
        return not loss_of(estimator).joint
    except SpecError:  # a fit says what is wrong with it
        return False


def validation_rows(estimator: BaseEstimator, source: RowSource, classes: HostArray, X: Any, y: Any) -> RowSource:
    """Return validation rows as a source for a fit of the estimator to `source`."""
    unknown = unknown_choice(estimator)
    if source.info.task != "regression":
        return labelled_rows(X, y, classes, source.info.encoding, unknown)
    return numeric_rows(X, y.toarray() if is_sparse(y) else y, source.info.encoding, unknown)


def _store(X: Any, y: Any, sample_weight: Any, known: HostArray | None) -> tuple[RowSource, HostArray]:
    only_store(y, sample_weight)
    found = StoreSource.at(X)
    if found.info.task == "regression" and found.info.n_targets > 1:
        return found, np.arange(found.info.n_targets)
    source = store_source(X, y, sample_weight, "classification")
    labels = np.array(source.info.classes)
    if known is not None and set(labels.tolist()) != set(known.tolist()):
        raise DataError(f"the store {X} has the classes {labels.tolist()}, the model {known.tolist()}")
    return source, labels


def _is_table(y: Any) -> bool:
    """Return whether y has several columns."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # lists of different lengths
        return False
    return len(shape) == 2 and shape[1] > 1
