"""Mounting the page on a running scheduler: its route, and its tab among those of Dask."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from daskkern.monitor.dashboard.document import fill
from daskkern.monitor.dashboard.origins import watch_origins
from daskkern.monitor.view import FitsView

PAGE = "kernel-fits"
_STATUS = "/status"
"""A page of Dask's own: paths of pages are those after the prefix of the dashboard."""
_BEFORE = "profile"
"""The tab is placed before this one of Dask's."""


class Mounted:
    """The page while it is served.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        One that serves a dashboard.
    view : FitsView
    """

    def __init__(self, scheduler: Any, view: FitsView) -> None:
        def page(server: Any, variables: Mapping[str, Any], document: Any) -> None:
            del server
            fill(document, view, variables)

        self._routes: list[Any] = scheduler.http_application.applications
        dashboard = next(app for app in self._routes if _STATUS in _paths(app))
        shared = template_variables(scheduler)
        self._pages: list[str] = shared["pages"]
        self._app = BokehApplication({f"/{PAGE}": page}, scheduler, _prefix(dashboard), shared)
        watch_origins(self._app)
        scheduler.http_application.add_application(self._app)
        self._app.initialize(IOLoop.current())
        self._app.start()
        if PAGE not in self._pages:
            self._pages.insert(self._pages.index(_BEFORE) if _BEFORE in self._pages else len(self._pages), PAGE)

    def close(self) -> None:
        """Remove the route and the tab. Idempotent."""
        with suppress(ValueError):
            self._routes.remove(self._app)
            self._app.stop(wait=False)  # newer Bokeh refuses to wait within the loop that it would wait for
        with suppress(ValueError):
            self._pages.remove(PAGE)


def has_dashboard(scheduler: Any) -> bool:
    """Return whether `scheduler` serves Dask's own pages."""
    application = getattr(scheduler, "http_application", None)
    return any(_STATUS in _paths(app) for app in getattr(application, "applications", ()))


def _paths(app: Any) -> set[str]:
    return set(getattr(app, "app_paths", ()))


def _prefix(app: Any) -> str:
    return str(getattr(app, "prefix", "")).rstrip("/")
