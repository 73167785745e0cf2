"""Puts the page "Kernel fits" and the lines for Prometheus on a scheduler that runs, beside the list of fits.

The scheduler needs nothing but daskkern. Without a dashboard, without bokeh or without prometheus_client it goes on
with what it has; its log says what is missing.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

from daskkern.cluster.scheduler.client import install_fits
from daskkern.cluster.scheduler.plugin import PLUGIN_NAME as FITS
from daskkern.cluster.scheduler.plugin import FitsPlugin
from daskkern.errors import ClusterError
from daskkern.monitor.metrics import Metrics
from daskkern.monitor.view import FitsView, SharedView

PROTOCOL = 3
"""Raised whenever page or metrics change, so that a newer daskkern puts its own in the place of an older one's."""

PLUGIN_NAME = f"daskkern_monitor_{PROTOCOL}"
_PLACE = "daskkern_monitor"
"""Where the scheduler keeps what is shown now, whichever version has put it there."""

logger = logging.getLogger(__name__)


class Shown(Protocol):
    """Something that is shown until it is closed."""

    def close(self) -> None: ...


class FitsOf:
    """The fits as the plugin on `scheduler` knows them; none without the plugin."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def fits(self) -> Sequence[Mapping[str, Any]]:
        plugin = self._plugin()
        return [] if plugin is None else plugin.fits()

    def history(self, fit: str) -> Mapping[str, Any]:
        plugin = self._plugin()
        return {} if plugin is None else plugin.history(fit)

    def glance(self, fit: str) -> Mapping[str, Any]:
        plugin = self._plugin()
        return {} if plugin is None else plugin.glance(fit)

    def cancel(self, fit: str) -> bool:
        plugin = self._plugin()
        return plugin is not None and plugin.cancel(fit)

    def _plugin(self) -> FitsPlugin | None:
        plugin = self._scheduler.plugins.get(FITS)
        return plugin if isinstance(plugin, FitsPlugin) else None


class MonitorPlugin(SchedulerPlugin):
    """The page and the metrics, on the scheduler. What another version has shown before gives way."""

    name = PLUGIN_NAME
    idempotent = True

    protocol = 0
    """Of the client that sent this plugin, which travels by its class's name: the class is the scheduler's own."""
    _shown: Sequence[Shown] = ()

    def __init__(self) -> None:
        self.protocol = PROTOCOL

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        if self.protocol != PROTOCOL and _PLACE in scheduler.extensions:
            return  # what is shown is the scheduler's own already: showing it again would only end its viewers' pages
        _close(scheduler)
        self._shown = _show(scheduler)
        scheduler.extensions[_PLACE] = self._shown

    async def close(self) -> None:
        if self._scheduler.extensions.get(_PLACE) is self._shown:
            _close(self._scheduler)


def show_fits(client: Client) -> None:
    """Show the fits of the cluster on its dashboard, at ``/kernel-fits``, and on ``/metrics``.

    Costs one message when they are shown already. Never raises for what the scheduler cannot show.

    Raises
    ------
    ClusterError
        When the scheduler cannot keep the list of fits.
    """
    install_fits(client)
    try:
        client.register_plugin(MonitorPlugin())
    except Exception as error:  # a fit goes well without a page
        logger.warning("the dashboard cannot show kernel fits: %s: %s", type(error).__name__, error)


def hide_fits(client: Client) -> None:
    """Take page and metrics off the scheduler; fits go on. Raises ClusterError when it runs no functions."""
    try:
        client.run_on_scheduler(_hide)
    except Exception as error:
        raise ClusterError(f"the page of kernel fits cannot be removed: {type(error).__name__}: {error}") from error


def _hide(dask_scheduler: Any) -> None:
    _close(dask_scheduler)
    for name in [name for name in dask_scheduler.plugins if str(name).startswith(f"{_PLACE}_")]:
        dask_scheduler.remove_plugin(name)


def _show(scheduler: Any) -> list[Shown]:
    shown: list[Shown] = []
    view = SharedView(FitsOf(scheduler))
    for what, open_it in (("page", _page), ("metrics", _metrics)):
        try:
            shown += open_it(scheduler, view)
        except Exception as error:  # bokeh or prometheus_client of another age, or none
            logger.warning("the %s of kernel fits is left out: %s: %s", what, type(error).__name__, error)
    return shown


def _page(scheduler: Any, view: FitsView) -> list[Shown]:
    if not getattr(scheduler, "http_application", None) or not scheduler.http_application.applications:
        return []  # without a dashboard; bokeh is not imported for it
    from daskkern.monitor.dashboard.mount import Mounted, has_dashboard

    return [Mounted(scheduler, view)] if has_dashboard(scheduler) else []


def _metrics(scheduler: Any, view: FitsView) -> list[Shown]:
    del scheduler
    try:
        return [Metrics(view)]
    except ImportError:
        return []  # Dask's /metrics says itself that it is missing


def _close(scheduler: Any) -> None:
    """Close what is shown now, whoever has put it there."""
    for shown in scheduler.extensions.pop(_PLACE, ()):
        try:
            shown.close()
        except Exception as error:  # of another version
            logger.warning("a page of kernel fits was not taken away cleanly: %s: %s", type(error).__name__, error)
