"""Origin checks: only viewers connected by a page of this dashboard, under one of its own names, may stop fits.

A browser lets any web site open a web socket to a dashboard that its user can reach, and Dask allows every origin
unless it is configured otherwise. Such a site may read, as it may on Dask's own pages. The request data of a session
cannot be used here: its token is not signed. The headers of the socket itself are set by the browser.

A web site can also point its own name at the dashboard (DNS rebinding), so that its pages and the dashboard are one
host to the browser: names that a stranger can own count only if they are configured. And it can overlay the page with
one of its own (clickjacking): browsers show it only in frames of this dashboard and of the configured hosts.
"""

# mypy: allow-untyped-calls, allow-subclassing-any
# bokeh is not typed.

import socket
from collections.abc import Iterable, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import dask
from bokeh.server.util import check_allowlist
from bokeh.server.views.doc_handler import DocHandler
from bokeh.server.views.ws import WSHandler
from tornado.ioloop import IOLoop

_ORIGINS = "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin"
_PRIVATE = (".local", ".localhost", ".internal")
"""Names that nobody can register."""

_own: WeakSet[Any] = WeakSet()
"""Documents to which only pages of this dashboard have connected."""
_foreign: WeakSet[Any] = WeakSet()


def may_stop(document: Any) -> bool:
    """Return whether the viewer of `document` may stop fits: only after a page of this dashboard has connected."""
    return document in _own


def is_foreign(document: Any) -> bool:
    """Return whether a page that may not stop fits has connected to `document`."""
    return document in _foreign


def trust(document: Any) -> None:
    """Let the viewer of `document` stop fits."""
    _own.add(document)


def is_own(headers: Mapping[str, str], named: Iterable[str] = (), names: Iterable[str] = ()) -> bool:
    """Return whether a page of this dashboard has opened a socket, or one from a host in `named`.

    Parameters
    ----------
    headers : mapping
        Of the request for the socket. A proxy reports the requested host in ``X-Forwarded-Host``, which a script of a
        web site cannot set.
    named : iterable of str
        Configured hosts in Bokeh's format: ``host``, ``host:port``, with ``*`` for a part of either.
    names : iterable of str
        Names of this machine.
    """
    origin = urlsplit(headers.get("Origin", "")).netloc.lower()
    if not origin:
        return False
    if check_allowlist(origin, _single(named)):
        return True
    host = headers.get("Host", "").lower()
    if not _is_ours(host, names):
        return False
    forwarded = headers.get("X-Forwarded-Host", "").split(",")[0].strip().lower()
    return origin in (host, forwarded)


def _single(named: Iterable[str]) -> list[str]:
    """Return the hosts in `named` without wildcards for all hosts."""
    return [host.lower() for host in named if host.split(":")[0] != "*"]


def _is_ours(host: str, names: Iterable[str]) -> bool:
    """Return whether no stranger can own the name in `host`: an address, a name without a dot, or one of `names`."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        ip_address(name)
    except ValueError:
        short = bool(name) and "." not in name
        return short or name.endswith(_PRIVATE) or name in {own.lower() for own in names}
    return True


@cache
def machine_names() -> tuple[str, ...]:
    """Return the names of this machine. May query a name server."""
    return socket.gethostname(), socket.getfqdn()


class Socket(WSHandler):
    """Bokeh's socket handler, extended to record who has opened it."""

    async def _async_open(self, token: str) -> None:
        await super()._async_open(token)
        if self.connection is None:
            return
        document, headers = self.connection.session.document, self.request.headers
        names = await IOLoop.current().run_in_executor(None, machine_names)
        if is_own(headers, dask.config.get(_ORIGINS, ()), names):
            trust(document)
        else:
            _own.discard(document)
            _foreign.add(document)


class Page(DocHandler):
    """Bokeh's page, which browsers do not show in frames of other web sites."""

    def set_default_headers(self) -> None:
        hosts = _single(dask.config.get(_ORIGINS, ()))
        self.set_header("Content-Security-Policy", " ".join(["frame-ancestors 'self'", *hosts]))
        if not hosts:  # this header has no list of hosts
            self.set_header("X-Frame-Options", "SAMEORIGIN")


def watch_origins(app: Any) -> None:
    """Make a bokeh application record who opens its sockets, and keep its page out of foreign frames.

    If the first fails, no viewer may stop fits.
    """
    for rule in app.wildcard_router.rules:
        for kind, ours in ((WSHandler, Socket), (DocHandler, Page)):
            if isinstance(rule.target, type) and issubclass(rule.target, kind):
                rule.target = ours
