"""Prometheus metrics of fits, next to Dask's own on the scheduler's ``/metrics``.

Names begin with Dask's namespace, as Dask's own do: ``dask_daskkern_fits`` and so on. Fits come and go, so only the
last few have series of their own.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import dask

from daskkern.events import PARTS_OF_TIME
from daskkern.monitor.view import FitsView

MOST_FITS = 50
"""Number of newest fits with series of their own: each costs Prometheus a series for each metric."""

_STATES = (
    "submitted",
    "queued",
    "preparing",
    "running",
    "recovering",
    "preempted",
    "finished",
    "interrupted",
    "cancelled",
    "failed",
    "lost",
)
_OF_EACH = {
    "fit_epoch": ("Epoch that the fit is in", "epoch"),
    "fit_max_epochs": ("Epochs after which the fit ends at the latest", ""),
    "fit_loss": ("Mean training loss of the epoch so far", "loss"),
    "fit_validation_score": ("Accuracy or R2 on validation rows after the last epoch", "validation_score"),
    "fit_rows_per_second": ("Training rows per second, 0 for a fit that has ended", "rows_per_second"),
    "fit_seconds_left": ("Seconds until the last epoch ends, at the pace of the last batches", "seconds_left"),
    "fit_workers": ("Workers that the fit holds", ""),
    "fit_time_share": ("Share of a part in the time of the last epoch, as a mean over the ranks", "time_shares"),
    "fit_workers_lost": ("How often the fit had to go on with other workers", "lost"),
}
_BY_PART = "fit_time_share"
_ENDED = frozenset(_STATES[5:])


class Metrics:
    """The metrics of fits in this process's Prometheus registry until closed. They replace earlier ones.

    Raises ImportError without prometheus_client.
    """

    _registered: ClassVar["FitMetrics | None"] = None

    def __init__(self, view: FitsView) -> None:
        from prometheus_client import REGISTRY

        self._registry: Any = REGISTRY
        self._collector = FitMetrics(view)
        before, Metrics._registered = Metrics._registered, None
        if before is not None:
            self._registry.unregister(before)
        self._registry.register(self._collector)
        Metrics._registered = self._collector

    def close(self) -> None:
        """Unregister the metrics, if they are still registered."""
        if Metrics._registered is self._collector:
            Metrics._registered = None
            self._registry.unregister(self._collector)


def _name(name: str) -> str:
    namespace = dask.config.get("distributed.dashboard.prometheus.namespace", "dask")
    return "_".join(part for part in (namespace, "daskkern", name) if part)


class FitMetrics:
    """A Prometheus collector whose gauges are read on request."""

    def __init__(self, view: FitsView) -> None:
        self._view = view

    def describe(self) -> Iterable[Any]:
        """Return no metrics, so that registering the collector does not call it."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics."""
        from prometheus_client.core import GaugeMetricFamily

        fits = self._view.fits()
        counted = Counter(str(status["state"]) for status in fits)
        family = GaugeMetricFamily(_name("fits"), "Fits that the scheduler knows, by state", labels=["state"])
        for state in _STATES:
            family.add_metric([state], counted[state])
        yield family
        newest = sorted(fits, key=lambda status: (status["state"] in _ENDED, -status["submitted"]))[:MOST_FITS]
        for name, (words, _) in _OF_EACH.items():
            parts = PARTS_OF_TIME if name == _BY_PART else ()
            family = GaugeMetricFamily(_name(name), words, labels=["fit", "name", *["part"] * bool(parts)])
            for status, part in itertools.product(newest, parts or ("",)):
                value = _value(name, status, part)
                if not math.isnan(value):
                    labels = [str(status["card"]["fit"]), str(status["card"]["name"])]
                    family.add_metric([*labels, part] if part else labels, value)
            yield family


def _value(name: str, status: Mapping[str, Any], part: str) -> float:
    """Return a number of a fit; NaN if it cannot be read, because an error would break all of ``/metrics``."""
    try:
        return _read(name, status, part)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return math.nan


def _read(name: str, status: Mapping[str, Any], part: str) -> float:
    if name == _BY_PART:
        return float(status["time_shares"].get(part, math.nan))
    if name == "fit_max_epochs":
        return float(status["card"]["max_epochs"])
    if name == "fit_workers":
        return float(len(status["workers"]))
    if name == "fit_rows_per_second" and status["state"] in _ENDED:
        return 0.0
    return float(status[_OF_EACH[name][1]])
