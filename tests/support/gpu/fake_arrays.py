"""Arrays that behave like CuPy's towards NumPy's: nothing of theirs reaches the host, or a host array, unasked.

They hold NumPy arrays, so that the numbers are right. What CuPy refuses is refused here: implicit conversion, host
arrays as operands, as values and (stricter than CuPy, which copies them silently) as indices, and objects as entries.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from tests.support.gpu.fake_graphs import noted, record, refuse


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words(
    "abs absolute add all any arange arccos arcsinh argmax argsort ascontiguousarray broadcast_to clip concatenate "
    "cos cumsum diff divide einsum empty_like exp expm1 flatnonzero full_like interp isfinite log log1p logaddexp "
    "matmul maximum median minimum multiply negative not_equal ones_like rint roll sign sin sort sqrt square stack "
    "subtract sum take take_along_axis tanh triu_indices true_divide unique where zeros_like"
)
"""Functions of CuPy's that do what NumPy's of that name do, as far as daskkern calls them."""
CREATORS = _words("empty full ones zeros")
CONSTANTS = _words("inf nan pi newaxis float16 float32 float64 int32 int64 uint32 uint64 bool_ finfo")
METHODS = _words(
    "all any argmax argsort astype clip copy cumsum diagonal dot max mean min nonzero ravel repeat reshape round "
    "searchsorted squeeze sum swapaxes transpose view"
)
_VIEWS = frozenset(_words("broadcast_to diagonal empty empty_like ravel reshape squeeze swapaxes transpose view"))
_SIZED_BY_DATA = frozenset(_words("flatnonzero nonzero unique"))
_counts: list[list[str]] = []
_waits: list[list[str]] = []
_BINARY = _words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne")


class FakeArray:
    """An array on the device. Made by :func:`on_device` only."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, held: HostArray) -> None:
        self.held = held

    shape = property(lambda self: self.held.shape)
    dtype = property(lambda self: self.held.dtype)
    ndim = property(lambda self: self.held.ndim)
    size = property(lambda self: self.held.size)
    nbytes = property(lambda self: self.held.nbytes)
    itemsize = property(lambda self: self.held.itemsize)
    strides = property(lambda self: self.held.strides)
    flags = property(lambda self: self.held.flags)
    T = property(lambda self: FakeArray(self.held.T))

    @property
    def data(self) -> Any:
        """Where the numbers are."""
        return SimpleNamespace(ptr=self.held.ctypes.data)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> HostArray:
        """Return a copy on the host."""
        del stream, order, out, blocking
        waited("get")
        return self.held.copy()

    def set(self, arr: HostArray, stream: Any = None) -> None:
        """Fill from a host array, now or when `stream` gets there."""
        refuse("copies from the host")
        if not isinstance(arr, np.ndarray) or arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError("Shape mismatch or dtype mismatch, or not an array of the host")
        if stream is None:
            waited("set")
            self.held[...] = arr
        else:
            stream.enqueue(partial(np.copyto, self.held, arr))

    def item(self) -> Any:
        """Return the only entry as a Python number."""
        waited("item")
        return self.held.item()

    def tolist(self) -> Any:
        """Return the entries as Python numbers."""
        waited("tolist")
        return self.held.tolist()

    def fill(self, value: Any) -> None:
        """Set all entries."""
        launched("fill")
        self.held.fill(stripped(value))
        record(partial(self.held.fill, stripped(value)))

    def __getitem__(self, key: Any) -> "FakeArray":
        keys = key if isinstance(key, tuple) else (key,)
        parts = [part for part in keys if isinstance(part, FakeArray)]
        if parts:
            launched("take")
        if any(part.dtype.kind == "b" for part in parts):
            waited("size of a mask")
        single = all(isinstance(part, int) for part in keys) and len(keys) == self.ndim
        made = on_device(self.held[(*keys, ...) if single else stripped(key)])  # one entry is a view, too
        if parts:
            noted(made.held)
            record(lambda: np.copyto(made.held, self.held[stripped(key)]))
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        if isinstance(value, FakeArray) and self._is_part(key, value.held):
            return  # as CuPy: of ``x[part] += y`` that is the rest
        launched("setitem")
        held, place, given = self.held, stripped(key), stripped(value)
        held[place] = given
        record(lambda: operator.setitem(held, place, given))

    def _is_part(self, key: Any, held: HostArray) -> bool:
        part = np.asarray(self.held[stripped(key)])
        same = part.__array_interface__["data"] == held.__array_interface__["data"]
        return same and part.shape == held.shape and part.strides == held.strides

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __array__(self, *args: Any, **kwargs: Any) -> HostArray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        return called(ufunc, *inputs, **{k: v[0] if k == "out" else v for k, v in kwargs.items()})

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func.__name__ not in NAMES:
            raise TypeError(f"{func.__name__} is none of the functions that the stand-in for CuPy has")
        return called(func, *args, **kwargs)

    def __float__(self) -> float:
        waited("float")
        return float(self.held.item())

    def __int__(self) -> int:
        waited("int")
        return int(self.held.item())

    def __index__(self) -> int:
        waited("index")
        return operator.index(self.held.item())

    def __bool__(self) -> bool:
        waited("bool")
        return bool(self.held)

    def __neg__(self) -> "FakeArray":
        return called(operator.neg, self)

    def __invert__(self) -> "FakeArray":
        return called(operator.invert, self)

    def __abs__(self) -> "FakeArray":
        return called(abs, self)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "astype" and not kwargs.get("copy", True) and self.dtype == np.dtype(args[0]):
            return self
        return called(getattr(self.held, name), *args, **kwargs)

    def _binary(self, work: Callable[[Any, Any], Any], other: Any) -> Any:
        return called(work, self, other)

    def _reflected(self, work: Callable[[Any, Any], Any], other: Any) -> Any:
        return called(work, other, self)

    def _in_place(self, work: Callable[[Any, Any], Any], other: Any) -> "FakeArray":
        launched(work.__name__)
        self.held = work(self.held, stripped(other))
        record(partial(work, self.held, stripped(other)))
        return self


for _name in METHODS:
    setattr(FakeArray, _name, partialmethod(FakeArray._call, _name))
for _name in _BINARY:
    _work = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(FakeArray, f"__{_name}__", partialmethod(FakeArray._binary, _work))
    if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(FakeArray, f"__r{_name}__", partialmethod(FakeArray._reflected, _work))
    if _name in ("add", "sub", "mul", "truediv", "and", "or"):
        setattr(FakeArray, f"__i{_name}__", partialmethod(FakeArray._in_place, getattr(operator, f"i{_name}")))


def launched(name: str) -> None:
    """Tell those who count that a GPU would have been given work. Views of an array, and memory alone, are none."""
    if name not in _VIEWS:
        for names in _counts:
            names.append(name)


def waited(why: str) -> None:
    """Tell those who count that the host would have waited for all that a GPU was given."""
    refuse(f"to wait for {why}")
    for names in _waits:
        names.append(why)


def launches_counted() -> AbstractContextManager[list[str]]:
    """Yield the names of what a GPU would be given within the context, in their order."""
    return _counted(_counts)


def waits_counted() -> AbstractContextManager[list[str]]:
    """Yield why the host would wait for a GPU within the context, in the order of these waits."""
    return _counted(_waits)


@contextmanager
def _counted(lists: list[list[str]]) -> Iterator[list[str]]:
    names: list[str] = []
    lists.append(names)
    try:
        yield names
    finally:
        lists[:] = [other for other in lists if other is not names]


def on_device(value: Any) -> Any:
    """Return results as CuPy gives them: numbers are arrays without dimensions, and stay on the device."""
    if isinstance(value, np.ndarray | np.generic):
        held = np.asarray(value)
        if held.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {held.dtype}")
        return FakeArray(held)
    if isinstance(value, tuple | list):
        return type(value)(map(on_device, value)) if type(value) in (tuple, list) else tuple(map(on_device, value))
    return value


def stripped(value: Any) -> Any:
    """Return operands as NumPy's, and raise TypeError for those of the host, as CuPy does."""
    if isinstance(value, FakeArray):
        return value.held
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(map(stripped, value))
    return value


def called(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of NumPy's on what fake arrays hold. Where it writes to `out`, that is returned."""
    out = kwargs.get("out")
    given, named = tuple(map(stripped, args)), {name: stripped(value) for name, value in kwargs.items()}
    with np.errstate(all="ignore"):  # a GPU says nothing
        made = work(*given, **named)
    if not any(made is stripped(array) for array in args if isinstance(array, FakeArray)):  # else: nothing to do
        launched(work.__name__)
    if work.__name__ in _SIZED_BY_DATA:
        waited(f"size of {work.__name__}")
    if isinstance(out, FakeArray):
        record(partial(work, *given, **named))
        return out
    result = on_device(made)
    _record_call(work, given, named, result)
    return result


def _record_call(work: Callable[..., Any], given: Any, named: Any, result: Any) -> None:
    """Record what fills the results again. Views need nothing, nor has memory that nothing was written to."""
    results = result if isinstance(result, tuple | list) else [result]
    sources = [getattr(work, "__self__", None), *given]
    operands = [source for source in sources if isinstance(source, np.ndarray)]
    if any(np.may_share_memory(one.held, source) for one in results for source in operands if hasattr(one, "held")):
        return
    for one in results:
        noted(one.held)
    if work.__name__ in ("empty", "empty_like"):
        return

    def again() -> None:
        with np.errstate(all="ignore"):
            made = work(*given, **named)
        for one, value in zip(results, made if isinstance(result, tuple | list) else [made], strict=True):
            np.copyto(one.held, value)

    record(again)
