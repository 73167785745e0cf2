"""Interleaved timing: every contender takes its turn in every round, so that drifts of the machine affect all alike.

Turns in which others used the machine's cores are excluded if enough undisturbed ones remain: libraries whose threads
wait for each other by spinning lose a factor of ten and more to one busy core, others a few percent.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from products.machine import OthersLoad

_PAUSE_S = 0.1  # idle threads of one library's pool spin for some 30 ms and would disturb the next contender
_WARM_S = (
    0.5  # products faster than this are preceded by untimed ones, which wake threads and raise the processor's clock
)
_LONG_ENOUGH_S = 0.1  # a turn repeats its product for at least this long, warming up and timed, and takes the mean
_LEAST_TURNS = 3
_OTHERS_CORES, _OTHERS_S = 0.1, 0.03  # what others may use in an undisturbed turn; the system counts in steps of 10 ms
_SLOW_S = 4.0  # a contender this slow is timed once


@dataclass(frozen=True)
class Contender:
    """One way to compute a product.

    `threads` creates the context in which `product` runs; entering it is not timed. `prepare_seconds` is the time spent
    once on the points Z, outside the timed product.
    """

    name: str
    way: str
    product: Callable[[], Any]
    threads: Callable[[], AbstractContextManager[None]]
    prepare_seconds: float = 0.0


@dataclass(frozen=True)
class Turn:
    """Seconds of one timed product, and whether other processes left the cores idle meanwhile."""

    seconds: float
    quiet: bool = True


def timed(contender: Contender, warm: bool = False) -> tuple[float, Any]:
    """Return the seconds of one product, and the product; with `warm`, untimed ones precede it."""
    with contender.threads():
        time.sleep(_PAUSE_S)
        if warm:
            _repeated(contender)
        return _repeated(contender) if warm else _once(contender)


def _once(contender: Contender) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = contender.product()
    return time.perf_counter() - begun, result


def _repeated(contender: Contender) -> tuple[float, Any]:
    """Return the mean seconds of as many products as fill the least time, and the last product."""
    begun, count = time.perf_counter(), 0
    while True:
        result, count = contender.product(), count + 1
        spent = time.perf_counter() - begun
        if spent >= _LONG_ENOUGH_S:
            return spent / count, result


def warmed_up(contender: Contender) -> tuple[float, Any]:
    """Return the seconds of one product, of the second unless the first is slow, and the product."""
    seconds, result = timed(contender)
    return (seconds, result) if seconds > _SLOW_S else timed(contender)


def interleaved(
    contenders: Sequence[Contender], first: dict[str, float], budget_s: float, most: int
) -> dict[str, list[Turn]]:
    """Return the turns of each contender, by its name.

    `first` are the seconds of one product of each, already measured. The turns adapt: each contender gets an equal
    share of `budget_s`, but at least 3 turns and at most `most`. Contenders slower than 4 s keep their first
    measurement. On a machine that gets busy meanwhile the rounds end at twice the budget.
    """
    repeats = {each.name: _repeats(first[each.name], budget_s / len(contenders), most) for each in contenders}
    turns: dict[str, list[Turn]] = {each.name: [] for each in contenders}
    rounds = max(repeats.values(), default=0)
    deadline = time.perf_counter() + 2 * budget_s
    for number in range(rounds):
        if time.perf_counter() > deadline and all(turns[name] for name in turns if repeats[name]):
            break  # the machine has become busier
        for each in contenders:
            if number * repeats[each.name] // rounds < (number + 1) * repeats[each.name] // rounds:  # spread evenly
                turns[each.name].append(_turn(each, warm=first[each.name] < _WARM_S))
    return {name: found or [Turn(first[name])] for name, found in turns.items()}


def _turn(contender: Contender, warm: bool) -> Turn:
    load = OthersLoad()
    seconds, _ = timed(contender, warm)
    others_s, wall_s = load.used()
    return Turn(seconds, others_s <= _OTHERS_S + _OTHERS_CORES * wall_s)


def _repeats(first: float, share_s: float, most: int) -> int:
    if first > _SLOW_S:
        return 0
    turn = _PAUSE_S + (2 * max(first, _LONG_ENOUGH_S) if first < _WARM_S else first)
    return min(most, max(_LEAST_TURNS, int(share_s / turn)))


def summary(turns: Sequence[Turn], entries: int) -> dict[str, float]:
    """Return median and lowest seconds of the quiet turns, or of all where fewer than 3 are quiet."""
    quiet = [turn.seconds for turn in turns if turn.quiet]
    counted = quiet if len(quiet) >= _LEAST_TURNS else [turn.seconds for turn in turns]
    median = statistics.median(counted)
    return {
        "median_seconds": float(f"{median:.4g}"),
        "lowest_seconds": float(f"{min(counted):.4g}"),
        "n_repeats": len(turns),
        "n_quiet_repeats": len(quiet),
        "ns_per_entry": float(f"{median / entries * 1e9:.4g}"),
    }
