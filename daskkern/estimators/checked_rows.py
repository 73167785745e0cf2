"""Rows with the checks of scikit-learn's estimators, and data frames by their recorded encoding."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, validate_data

from daskkern.arrays import FloatArray
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.schema.encoding import Encoding
from daskkern.errors import DataError
from daskkern.estimators.frame_codes import check_columns, encoded, needs_encoding
from daskkern.estimators.frames import as_table
from daskkern.estimators.parameters import unknown_choice

_NONE = "no_validation"


def checked_rows(
    estimator: BaseEstimator, X: Any, encoding: Encoding | None, y: Any = _NONE, *, reset: bool, **settings: Any
) -> Any:
    """Return checked rows, or rows and targets, and set or compare ``n_features_in_`` and ``feature_names_in_``.

    Parameters
    ----------
    estimator : BaseEstimator
    X : array-like, sparse matrix or data frame (n, d)
    encoding : Encoding or None
        How columns of a frame become features.
    y : array-like, optional
    reset : bool
        Whether the columns are those of a first fit, rather than compared with them.
    **settings
        Those of :func:`sklearn.utils.validation.validate_data`.

    Raises
    ------
    DataError, ValueError
        For rows that cannot be used; of an encoded frame in one sentence.
    """
    X = as_table(X)
    refuse_masks(X, "X")
    if not needs_encoding(X, encoding):
        return validate_data(estimator, X, y, reset=reset, **settings)
    assert encoding is not None
    names = tuple(column.name for column in encoding)
    if reset:
        estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.n_features_in_ = len(names)
    elif hasattr(estimator, "feature_names_in_"):
        check_columns(names, X)
    features = encoded(X, encoding, unknown_choice(estimator) if hasattr(estimator, "handle_unknown") else None)
    if isinstance(y, str) and y == _NONE:
        return check_array(features, estimator=estimator, input_name="X", **settings)
    return check_X_y(features, y, estimator=estimator, **settings)


def checked_weight(sample_weight: Any, X: Any) -> FloatArray | None:
    """Return the weights (n,) of rows; None where none are given. ValueError unless finite and 0 or more."""
    if sample_weight is None:
        return None
    refuse_masks(sample_weight, "sample_weight")
    if np.asarray(sample_weight).dtype.kind in "mM":
        raise DataError("sample_weight holds dates or durations; expected a number for each row")
    weight: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return weight
