"""Sums and finiteness checks on a GPU, in one or two kernel launches each.

On an H200, `sum` of CuPy 14.2 took 53 us of the host, and a launch of our own 19 us; a step of few rows is as long as
what the host does for it. And on a new machine, CuPy compiles many of its sums with the headers of CUB, 3 to 4.6 s
each: the first fit of all took 23 s, three quarters of it for five of them.
"""

from importlib.resources import files
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from daskkern.arrays import Array
from daskkern.backend.devices import compiled_once
from daskkern.backend.namespace import is_sparse, namespace_of, to_host

_THREADS = 256
_ROWS = 8  # of a block of threads
_MOST_BLOCKS = 4096
_SUMMED = 1 << 14  # values that a block of threads sums, until there are _MOST_SUMS blocks
_MOST_SUMS = 512
_NAMES = {"float32": "float", "float64": "double"}


def add_parts(parts: Array, dtype: DTypeLike = np.float64) -> Array:
    """Return the sum of `parts` (n, ...) over the first axis, added in float64, in the dtype `dtype`: a new array.

    On a GPU the parts are contiguous, of float32 or float64.
    """
    xp, made = namespace_of(parts), np.dtype(dtype)
    if xp is np:
        return parts.sum(axis=0, dtype=np.float64).astype(made, copy=False)
    out = xp.empty(parts.shape[1:], made)
    if out.size:
        function = _function(xp, "add_parts", parts.dtype.name, made.name)
        blocks = min(-(-out.size // _THREADS), _MOST_BLOCKS)
        function((blocks, 1), (_THREADS,), (parts, np.int64(len(parts)), np.int64(out.size), out))
    return out


def takes_rows(X: Array) -> bool:
    """Return whether :func:`row_squares` takes X: dense rows on a GPU, whose numbers are contiguous."""
    if is_sparse(X) or namespace_of(X) is np or X.dtype.name not in _NAMES:
        return False
    return bool(X.shape[1] < 2 or X.strides[1] == X.itemsize)


def row_squares(X: Array, most: float = np.inf, factor: float = 1.0) -> Array:
    """Return ``factor |x_i|^2`` (m,) of dense rows X (m, d) on a GPU, whose numbers are contiguous, in their dtype.

    It is NaN where ``|x_i|^2`` is greater than `most`, or not a number.
    """
    xp, (m, d) = namespace_of(X), X.shape
    out = xp.empty(m, X.dtype)
    if m:
        stride = X.strides[0] // X.itemsize if m > 1 else d
        number = X.dtype.type
        function = _function(xp, "row_squares", X.dtype.name, X.dtype.name)
        arguments = (X, np.int64(m), np.int64(d), np.int64(stride), number(most), number(factor), out)
        function((-(-m // _ROWS), 1), (32 * _ROWS,), arguments)
    return out


def sum_all(values: Array) -> Array:
    """Return the sum of all values, added in float64: an array () float64 where they are."""
    if not _is_flat(values):
        return namespace_of(values).asarray(values.sum(dtype=np.float64))
    return _whole(_block_sums("sum_values", values))


def sum_products(left: Array, right: Array, factor: float = 1.0) -> Array:
    """Return `factor` times the sum of ``left * right``, arrays of one shape and dtype, in float64: an array () of it.

    On a GPU the products are never written.
    """
    if not (_is_flat(left) and _is_flat(right)):
        return factor * sum_all(left.astype(np.float64, copy=False) * right)
    return _whole(_block_sums("sum_products", left, right, np.float64(factor)))


def all_within(values: Array, most: float) -> bool:
    """Return whether no value is NaN, or greater than `most` in size. Waits for a GPU."""
    if not _is_flat(values):
        return bool((abs(values) <= most).all())
    return not float(to_host(add_parts(_block_sums("count_beyond", values, values.dtype.type(most)))))


def all_finite(values: Array) -> bool:
    """Return whether no floating-point value is NaN or infinite. Waits for a GPU."""
    return all_within(values, float(np.finfo(values.dtype).max))


def _is_flat(values: Array) -> bool:
    """Return whether values on a GPU follow each other in memory, in a dtype of :data:`_NAMES`."""
    on_gpu = namespace_of(values) is not np and values.dtype.name in _NAMES
    return bool(on_gpu and values.size and values.flags.c_contiguous)


def _whole(parts: Array) -> Array:
    """Return the sum of parts (n,) float64 as an array ()."""
    return parts.reshape(()) if parts.size == 1 else add_parts(parts)


def _block_sums(name: str, values: Array, *arguments: Any) -> Array:
    """Return a float64 number of each block of threads (n_blocks,), which depend on the number of values alone."""
    xp = namespace_of(values)
    blocks = min(-(-values.size // _SUMMED), _MOST_SUMS)
    parts = xp.empty(blocks, np.float64)
    function = _function(xp, name, values.dtype.name, values.dtype.name)
    function((blocks, 1), (_THREADS,), (values, np.int64(values.size), *arguments, parts))
    return parts


@compiled_once
def _function(xp: ModuleType, name: str, given: str, made: str) -> Any:
    types = f"#define DASKKERN_GENERATED 1\ntypedef {_NAMES[given]} given;\ntypedef {_NAMES[made]} made;\n"
    return xp.RawModule(code=types + files(__package__).joinpath("reductions.cu").read_text()).get_function(name)
