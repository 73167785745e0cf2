"""Remedies for a fit that exceeds its memory budget, each with the figure of a recomputed plan."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from daskkern.solvers.costs.sizes import FitSizes
from daskkern.training.planning.memory_items import items_of
from daskkern.training.run.settings import batch_limit

_WANTED = 3
_MOST_RANKS = 4096
_LEAST_LANDMARKS, _LEAST_BATCH = 100, 16
_SUBSAMPLE = 2000
_WIDE_AS_80 = 80.0


def fits(sizes: FitSizes, budget: int, device_budget: int) -> bool:
    """Return whether a rank of these sizes stays within both budgets."""
    host, device = items_of(sizes)
    return total(host) <= budget and total(device) <= device_budget


def total(items: tuple[tuple[str, int], ...]) -> int:
    """Return the sum of the items."""
    return sum(size for _, size in items)


def remedies(sizes: FitSizes, budget: int, device_budget: int) -> tuple[str, ...]:
    """Return at most three ways to fit this data within the budgets, the least intrusive first; each was checked."""

    def ok(changed: FitSizes) -> bool:
        return fits(changed, budget, device_budget)

    found = []
    for remedy in _candidates(sizes, ok):
        found.append(remedy)
        if len(found) == _WANTED:
            break
    return tuple(found)


def _candidates(z: FitSizes, ok: Callable[[FitSizes], bool]) -> Iterator[str]:
    batch = largest_batch(z, ok)
    if batch:
        yield f"batch_size={batch} instead of {z.m}"
    if z.costs.has_subsample or z.p > _LEAST_LANDMARKS:
        most = _largest(1, min(z.p - 1, z.n), lambda p: ok(with_landmarks(z, p)))
        if most >= min(_LEAST_LANDMARKS, z.p - 1, z.n):
            yield f"{most} landmarks instead of {'all ' * z.all_rows}{z.p}{' rows' * z.all_rows}"
    ranks = _fewest_ranks(z, ok)
    if ranks is not None:
        yield f"{ranks} workers with as much memory each instead of {z.ranks}"
    if z.itemsize == 8 and ok(replace(z, itemsize=4)):
        yield "dtype float32 instead of float64"
    if z.exact and ok(replace(z, exact=False)):
        yield "projection 'eigenpro' instead of a factor (--set solver.projection=eigenpro)"
    if z.validation and ok(replace(z, validation=0, n=z.n + z.validation)):
        yield f"no early stopping, which holds {z.validation} rows for validation"
    subsample = _largest(1, z.s - 1, lambda s: ok(with_subsample(z, s)))
    if subsample:
        yield f"a subsample of {subsample} rows instead of {z.s} (--set solver.subsample={subsample})"
    if z.device == "gpu" and ok(replace(z, device="cpu")):
        yield "device 'cpu'"
    small = with_batch(z, min(z.m, _LEAST_BATCH))
    most = _largest(1, z.p, lambda p: ok(with_landmarks(small, p)))
    if most >= min(_LEAST_LANDMARKS, z.p):
        yield f"both {most} landmarks and batch_size={small.m}"


def largest_batch(z: FitSizes, ok: Callable[[FitSizes], bool]) -> int:
    """Return the rows of the largest batch that is smaller than that of `z` and ok, or 0."""
    return _largest(1, z.m - 1, lambda m: ok(with_batch(z, m)))


def with_batch(z: FitSizes, m: int) -> FitSizes:
    """Return the sizes with batches of `m` rows, and a window of as many rows as before."""
    window = min(z.window * z.m, z.p)
    return replace(z, m=m, window=-(-window // m) if z.window > 1 else 1, auto_batch=False)


def with_landmarks(z: FitSizes, p: int) -> FitSizes:
    """Return the sizes with `p` landmarks, with everything that follows from them at its default."""
    s = min(z.s or _SUBSAMPLE, _SUBSAMPLE, max(1, 4 * p // 5)) if z.costs.has_subsample else 0
    m = min(z.n, batch_limit(p)) if z.auto_batch else z.m
    exact = z.exact or z.all_rows
    rows = p * min(1.0, (_WIDE_AS_80 / max(z.d, 1)) ** 0.5) if exact else p
    window = max(1, -(-int(rows + 1) // m)) if z.costs.has_subsample else 1
    span = int(rows + 1) if z.auto_batch and z.costs.has_subsample else 0
    return replace(z, p=p, s=s, q=min(z.q, s), m=m, window=window, span=span, all_rows=False, exact=exact)


def with_subsample(z: FitSizes, s: int) -> FitSizes:
    """Return the sizes with a subsample of `s` rows."""
    return replace(z, s=s, q=min(z.q, max(1, s // 5)))


def _fewest_ranks(z: FitSizes, ok: Callable[[FitSizes], bool]) -> int | None:
    """Return the fewest ranks that fit. More of them never need more each."""
    high = z.ranks
    while not ok(replace(z, ranks=high)):
        if high >= _MOST_RANKS:
            return None
        high *= 2
    low = max(z.ranks, high // 2)
    return low + 1 + _largest(1, high - low - 1, lambda k: not ok(replace(z, ranks=low + k)))


def _largest(low: int, high: int, ok: Callable[[int], bool]) -> int:
    """Return the largest number from `low` to `high` that is ok, or 0; what is ok stays ok for smaller numbers."""
    if low > high or not ok(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if ok(middle) else (low, middle - 1)
    return low
