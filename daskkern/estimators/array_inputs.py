"""Sources of rows from NumPy arrays and sparse matrices, with the checks of scikit-learn's estimators."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import as_csr, is_sparse
from daskkern.data.rows.exact_integers import check_label_floats, check_quantities
from daskkern.data.rows.finite import check_finite, refuse_masks
from daskkern.data.schema.encoding import Encoding, UnknownChoice
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.estimators.checked_rows import checked_rows, checked_weight
from daskkern.estimators.frame_codes import encoded, frame_encoding, needs_encoding
from daskkern.estimators.frames import check_raw
from daskkern.estimators.labels import codes_of, plain_labels, plain_targets, refuse_sparse, refuse_text
from daskkern.estimators.parameters import unknown_choice
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource


def labelled_arrays(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, known: HostArray | None = None, *, reset: bool = True
) -> tuple[ArraySource, HostArray]:
    """Return rows with class labels as a source, and the classes: `known`, or those of `y`, ascending.

    The estimator's ``n_features_in_`` is set, or, without `reset`, compared.
    """
    encoding, names = _encoding(estimator, X, reset), _target_names(y)
    X, y, weight = _checked(estimator, X, encoding, plain_targets(y), sample_weight, reset)
    assert_all_finite(y, input_name="y")
    check_label_floats(y)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True) if known is None else (known, codes_of(y, known))
    if classes.size < 2:
        raise DataError(f"a classifier needs at least 2 classes, but y holds only one class: {classes.tolist()}")
    return _described(array_source(X, codes.astype(np.int64), weight, classes), encoding, names), classes


def numeric_arrays(estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, *, reset: bool = True) -> ArraySource:
    """Return rows with numbers as targets as a source; see :func:`labelled_arrays`."""
    encoding, names = _encoding(estimator, X, reset), _target_names(y)
    y = plain_targets(y)
    refuse_sparse(y)
    if y is not None:
        check_quantities(np.asarray(y))
    try:
        X, targets, weight = _checked(
            estimator, X, encoding, y, sample_weight, reset, multi_output=True, y_numeric=True
        )
        numbers = np.asarray(targets, np.float64)
    except ValueError:
        refuse_text(y)
        raise
    check_finite(np.asarray(targets), name="y")
    return _described(array_source(X, numbers, weight, None), encoding, names)


def multilabel_arrays(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
) -> ArraySource:
    """Return rows with several labels, a dense or sparse table of 0 and 1, as a source; see :func:`labelled_arrays`."""
    encoding, names = _encoding(estimator, X, reset), _target_names(y)
    y = y.toarray() if is_sparse(y) else y
    X, y, weight = _checked(estimator, X, encoding, y, sample_weight, reset, multi_output=True)
    labels = np.asarray(y)
    if labels.dtype.kind not in "fiub" or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"got y of shape {labels.shape} with other values than 0 and 1; give one class a row, or a table of labels "
            "that are 0 or 1"
        )
    return _described(array_source(X, labels.astype(np.float64), weight, None), encoding, names)


def _encoding(estimator: BaseEstimator, X: Any, reset: bool) -> Encoding | None:
    """Return how columns of categories become numbers: as in `X`, or as the model of earlier rows records it."""
    model = None if reset else getattr(estimator, "model_", None)
    return frame_encoding(X, unknown_choice(estimator)) if model is None else model.encoding


def _described(source: ArraySource, encoding: Encoding | None, names: tuple[str, ...] | None = None) -> ArraySource:
    """Return the source with the encoding of its features and the names of its targets, where there are any."""
    if encoding is None and names is None:
        return source
    return replace(source, info=replace(source.info, encoding=encoding, target_names=names))


def _target_names(y: Any) -> tuple[str, ...] | None:
    """Return the name of a series, or those of the columns of a frame; None where they are not texts, or not unique."""
    columns = getattr(y, "columns", None)
    names = [getattr(y, "name", None)] if columns is None else list(columns)
    known = all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names) > 0
    return tuple(map(str, names)) if known else None


def _checked(
    estimator: BaseEstimator,
    X: Any,
    encoding: Encoding | None,
    y: Any,
    sample_weight: Any,
    reset: bool,
    **targets: bool,
) -> tuple[Any, Any, HostArray | None]:
    check_raw(None if needs_encoding(X, encoding) else X, y)
    X, y = checked_rows(
        estimator,
        X,
        encoding,
        y,
        reset=reset,
        dtype="numeric",
        order="C",
        ensure_min_samples=2 if reset else 1,
        ensure_all_finite=False,
        accept_sparse="csr",
        **targets,
    )
    return X, y, checked_weight(sample_weight, X)


def labelled_rows(
    X: Any, y: Any, classes: HostArray, encoding: Encoding | None = None, unknown: UnknownChoice = "refuse"
) -> ArraySource:
    """Return validation rows as a source, with features and labels encoded as those of the training rows."""
    rows = array_source(table(X, encoding, unknown), codes_of(y, classes, "y of the validation rows"), None, classes)
    return _described(rows, encoding if needs_encoding(X, encoding) else None)


def numeric_rows(X: Any, y: Any, encoding: Encoding | None = None, unknown: UnknownChoice = "refuse") -> ArraySource:
    """Return validation rows with numbers as targets as a source, with features encoded as the training rows."""
    refuse_masks(y, "y of the validation rows")
    refuse_sparse(y)
    refuse_text(y)
    found = np.asarray(plain_targets(y))
    check_quantities(found)
    rows, y = table(X, encoding, unknown), found.astype(np.float64)
    check_finite(y, name="the validation targets")
    return _described(array_source(rows, y, None, None), encoding if needs_encoding(X, encoding) else None)


def array_source(X: Any, y: HostArray, weight: HostArray | None, classes: HostArray | None) -> ArraySource:
    """Return the source for checked NumPy arrays; `y` holds codes when `classes` is given, else (n, t) values."""
    check_finite(X)
    labels = None if classes is None else plain_labels(classes)
    single = y.ndim == 1
    info = SourceInfo(
        X.shape[0],
        X.shape[1],
        "classification" if labels is not None else "regression",
        labels,
        Scaling(),
        None,
        1 if single else y.shape[1],
        single,
        int(X.nnz) if is_sparse(X) else None,
    )
    return ArraySource(as_csr(X) if is_sparse(X) else X, y, weight, info)


def table(X: Any, encoding: Encoding | None = None, unknown: UnknownChoice = "refuse") -> HostArray:
    """Return validation rows as a 2-d array of numbers, frames encoded by `encoding`, or raise DataError."""
    if encoding is not None and needs_encoding(X, encoding):
        return encoded(X, encoding, unknown)
    refuse_masks(X, "X of the validation rows")
    array = as_csr(X) if is_sparse(X) else np.asarray(X)
    if array.dtype.kind == "O" and array.ndim == 2 and len(array):  # numbers among objects, as a fit takes them
        check_raw(X)
        with suppress(ValueError):
            array = check_array(X, ensure_all_finite=False)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise DataError(f"got validation rows of shape {array.shape} and {array.dtype}; expected a table of numbers")
    return array
