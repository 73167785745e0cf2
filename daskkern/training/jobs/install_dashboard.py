"""Installation of the page "Kernel fits" and of Prometheus metrics on a running scheduler.

The scheduler needs only daskkern. Without a dashboard, bokeh or prometheus_client it shows what it can, and its log
reports what is missing.
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
"""Incremented whenever page or metrics change, so that a newer daskkern replaces those of an older one."""

PLUGIN_NAME = f"daskkern_monitor_{PROTOCOL}"
_PLACE = "daskkern_monitor"
"""Key of the extension with what the scheduler shows now, whichever version installed it."""

logger = logging.getLogger(__name__)


class Shown(Protocol):
    """A page or metrics that are shown until closed."""

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
    """Scheduler plugin with the page and the metrics. It replaces those of another version."""

    name = PLUGIN_NAME
    idempotent = True

    protocol = 0
    """Version of the client that sent the plugin. Its class, pickled by name, is that of the scheduler's version."""
    _shown: Sequence[Shown] = ()

    def __init__(self) -> None:
        self.protocol = PROTOCOL

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        if self.protocol != PROTOCOL and _PLACE in scheduler.extensions:
            return  # the scheduler shows its own version already: showing it again would only close its viewers' pages
        _close(scheduler)
        self._shown = _show(scheduler)
        scheduler.extensions[_PLACE] = self._shown

    async def close(self) -> None:
        if self._scheduler.extensions.get(_PLACE) is self._shown:
            _close(self._scheduler)


def show_fits(client: Client) -> None:
    """Show the fits of the cluster on its dashboard, at ``/kernel-fits``, and on ``/metrics``.

    Costs one message when they are shown already. What the scheduler cannot show is logged, not raised.

    Raises
    ------
    ClusterError
        When the scheduler cannot have the registry of fits.
    """
    install_fits(client)
    try:
        client.register_plugin(MonitorPlugin())
    except Exception as error:  # a fit does not depend on the page
        logger.warning("the dashboard cannot show kernel fits: %s: %s", type(error).__name__, error)


def hide_fits(client: Client) -> None:
    """Remove page and metrics from the scheduler; fits continue. Raises ClusterError when it cannot run functions."""
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
        except Exception as error:  # bokeh or prometheus_client of another version, or none
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
        return []  # Dask's /metrics page itself reports that it is missing


def _close(scheduler: Any) -> None:
    """Close what is shown now, whichever version installed it."""
    for shown in scheduler.extensions.pop(_PLACE, ()):
        try:
            shown.close()
        except Exception as error:  # of another version
            logger.warning("a page of kernel fits was not removed cleanly: %s: %s", type(error).__name__, error)
