"""Which viewers may stop fits: those whose connection a page of this dashboard has opened.

A browser lets any web site open a web socket to a dashboard that its user can reach, and Dask allows every origin
unless it is configured otherwise. Such a site may look, as it may on Dask's own pages. What a session says of its
request is of no use here: its token is not signed. The headers of the socket itself are the browser's.
"""

# mypy: allow-untyped-calls, allow-subclassing-any
# bokeh is not typed.

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import dask
from bokeh.server.views.ws import WSHandler

_ORIGINS = "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin"

_own: WeakSet[Any] = WeakSet()
"""Documents to which only pages of this dashboard are connected."""


def may_stop(document: Any) -> bool:
    """Return whether the viewer of `document` may stop fits: not before a page of this dashboard has connected."""
    return document in _own


def trust(document: Any) -> None:
    """Let the viewer of `document` stop fits."""
    _own.add(document)


def is_own(headers: Mapping[str, str], named: Iterable[str] = ()) -> bool:
    """Return whether a page from the very host that was asked has opened a socket, or one from a host in `named`.

    A proxy tells the host in ``X-Forwarded-Host``, which the script of a web site cannot set.
    """
    origin = urlsplit(headers.get("Origin", "")).netloc.lower()
    forwarded = headers.get("X-Forwarded-Host", "").split(",")[0]
    hosts = {headers.get("Host", ""), forwarded.strip(), *named}
    return bool(origin) and origin in {host.lower() for host in hosts}


class Socket(WSHandler):
    """Bokeh's end of a socket, which notes who has opened it."""

    async def _async_open(self, token: str) -> None:
        await super()._async_open(token)
        if self.connection is None:
            return
        document = self.connection.session.document
        if is_own(self.request.headers, dask.config.get(_ORIGINS, ())):
            trust(document)
        else:
            _own.discard(document)


def watch_origins(app: Any) -> None:
    """Have the sockets of a bokeh application note who has opened them. Where that fails, nobody may stop."""
    for rule in app.wildcard_router.rules:
        if isinstance(rule.target, type) and issubclass(rule.target, WSHandler):
            rule.target = Socket
