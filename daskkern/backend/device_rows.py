"""CSR rows on a GPU whose operations never wait for it.

A matrix of CuPy's looks at its own numbers, and so waits for the GPU, when it is made, cut or multiplied. Here the row
starts are also in host memory, where they come from: the size of any part is then known without a look at the GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.devices import compiled_once

_THREADS = 128
_MOST_ACROSS = 1 << 20  # blocks of threads along a grid
_TEXT = """
typedef %s real;

// sums[row] of the numbers of each row, or of their squares, in double and in their order.
extern "C" __global__ void sum_rows(
    const real* data, const long long* starts, long long n_rows, long long squares, real* sums)
{
    for (long long row = (long long)blockIdx.x * %d + threadIdx.x; row < n_rows; row += (long long)gridDim.x * %d) {
        double sum = 0.0;
        for (long long at = starts[row]; at < starts[row + 1]; ++at)
            sum += data[at] * (squares ? (double)data[at] : 1.0);
        sums[row] = (real)sum;
    }
}

// out (n_rows, d) holds zeros, and receives the numbers.
extern "C" __global__ void fill_rows(
    const real* data, const int* columns, const long long* starts, long long n_rows, long long d, real* out)
{
    for (long long row = blockIdx.x; row < n_rows; row += gridDim.x)
        for (long long at = starts[row] + threadIdx.x; at < starts[row + 1]; at += %d)
            out[row * d + columns[at]] = data[at];
}

// The rows of these numbers, one after the other.
extern "C" __global__ void take_rows(
    const real* data, const int* columns, const long long* starts, const long long* numbers, long long n_rows,
    const long long* new_starts, real* new_data, int* new_columns)
{
    for (long long row = blockIdx.x; row < n_rows; row += gridDim.x) {
        const long long from = starts[numbers[row]], to = new_starts[row], size = new_starts[row + 1] - to;
        for (long long at = threadIdx.x; at < size; at += %d) {
            new_data[to + at] = data[from + at];
            new_columns[to + at] = columns[from + at];
        }
    }
}
"""


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """CSR rows (m, d) on a GPU, in canonical form: the columns of a row ascend, each once.

    Attributes
    ----------
    xp : module
        Of the arrays.
    data : (nnz,) array
    indices : (nnz,) array of int32
        Columns.
    indptr : (m + 1,) array of int64
        Where rows start.
    starts : (m + 1,) array of int64
        The same in host memory.
    shape : (int, int)
    """

    xp: ModuleType
    data: Array
    indices: Array
    indptr: Array
    starts: IntArray
    shape: tuple[int, int]
    format = "csr"

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the numbers."""
        return np.dtype(self.data.dtype)

    @property
    def nnz(self) -> int:
        """The numbers that are stored."""
        return int(self.starts[-1])

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def with_data(self, data: Array) -> "DeviceRows":
        """Return rows with other numbers in the same places."""
        return replace(self, data=data)

    def astype(self, dtype: Any, copy: bool = True) -> "DeviceRows":
        """Return the rows in another dtype."""
        return self.with_data(self.data.astype(dtype, copy=copy))

    def __getitem__(self, key: slice | Array) -> "DeviceRows":
        """Return some rows, by a slice or by their numbers; a copy unless they are adjacent."""
        m = self.shape[0]
        if isinstance(key, slice):
            start, stop, step = key.indices(m)
            if (start, stop, step) == (0, m, 1):
                return self
            if step == 1:
                return self._adjacent(start, max(start, stop))
            key = np.arange(start, stop, step)
        if isinstance(key, tuple):
            raise TypeError("got columns of sparse rows on a GPU; expected whole rows, by a slice or by their numbers")
        return self._taken(key if isinstance(key, np.ndarray) else key.get())

    def _adjacent(self, start: int, stop: int) -> "DeviceRows":
        first, last = int(self.starts[start]), int(self.starts[stop])
        part = slice(first, last)
        indptr, starts = self.indptr[start : stop + 1] - first, self.starts[start : stop + 1] - first
        return DeviceRows(self.xp, self.data[part], self.indices[part], indptr, starts, (stop - start, self.shape[1]))

    def _taken(self, numbers: IntArray) -> "DeviceRows":
        xp = self.xp
        numbers = np.arange(self.shape[0])[numbers]  # of a mask, and of numbers from the end, too
        starts = _starts(self.starts[1:][numbers] - self.starts[:-1][numbers])
        data, indices = xp.empty(int(starts[-1]), self.dtype), xp.empty(int(starts[-1]), np.int32)
        indptr = xp.asarray(starts)
        self._launch(
            "take_rows", numbers.size,
            [self.data, self.indices, self.indptr, xp.asarray(numbers), np.int64(numbers.size), indptr, data, indices],
        )  # fmt: skip
        return DeviceRows(xp, data, indices, indptr, starts, (int(numbers.size), self.shape[1]))

    def toarray(self) -> Array:
        """Return the rows as a table (m, d)."""
        m, d = self.shape
        out = self.xp.zeros((m, d), self.dtype)
        self._launch("fill_rows", m, [self.data, self.indices, self.indptr, np.int64(m), np.int64(d), out])
        return out

    def row_sums(self, *, squares: bool = False) -> Array:
        """Return the sums (m,) of the numbers of each row, or of their `squares`, summed in float64."""
        m = self.shape[0]
        sums = self.xp.empty(m, self.dtype)
        self._launch("sum_rows", -(-m // _THREADS), [self.data, self.indptr, np.int64(m), np.int64(squares), sums])
        return sums

    def with_ones(self, column: int, n_columns: int) -> "DeviceRows":
        """Return rows (m, n_columns) with an entry 1 more in each, in `column`, which is behind all others."""
        xp, m = self.xp, self.shape[0]
        ones = DeviceRows(
            xp, xp.ones(m, self.dtype), xp.full(m, column, np.int32), xp.arange(m + 1), np.arange(m + 1), (m, n_columns)
        )
        both = stack_device_rows([replace(self, shape=(m, n_columns)), ones])
        # Row i and the entry of its own become neighbours; then two rows are read as one.
        pairs = both[np.arange(2 * m).reshape(2, m).T.ravel()]
        return replace(pairs, indptr=pairs.indptr[::2].copy(), starts=pairs.starts[::2], shape=(m, n_columns))

    def tocsr(self) -> Any:
        """Return the rows as a matrix of CuPy's. Waits for the GPU."""
        import cupyx.scipy.sparse  # optional package

        return cupyx.scipy.sparse.csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)

    def __matmul__(self, other: Any) -> Any:
        return self.tocsr() @ (other.tocsr() if isinstance(other, DeviceRows) else other)

    def _launch(self, name: str, blocks: int, arguments: Sequence[Any]) -> None:
        if self.shape[0]:
            _function(self.xp, name, self.dtype.itemsize)(
                (min(max(1, blocks), _MOST_ACROSS), 1), (_THREADS,), tuple(arguments)
            )


def stack_device_rows(parts: Sequence[DeviceRows]) -> DeviceRows:
    """Return rows followed by others, of one dtype and number of features; a copy."""
    xp = parts[0].xp
    data, indices = (xp.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
    starts = _starts(np.concatenate([np.diff(part.starts) for part in parts]))
    return DeviceRows(xp, data, indices, xp.asarray(starts), starts, (starts.size - 1, parts[0].shape[1]))


def _starts(lengths: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@compiled_once
def _function(xp: ModuleType, name: str, itemsize: int) -> Any:
    text = _TEXT % ("float" if itemsize == 4 else "double", *[_THREADS] * 4)
    return xp.RawModule(code=text).get_function(name)
