"""Which viewers may stop fits: those whose connection a page of this dashboard has opened, under a name of its own.

A browser lets any web site open a web socket to a dashboard that its user can reach, and Dask allows every origin
unless it is configured otherwise. Such a site may look, as it may on Dask's own pages. What a session says of its
request is of no use here: its token is not signed. The headers of the socket itself are the browser's.

A web site can also have its own name lead to the dashboard (DNS rebinding), so that its pages and the dashboard are one
host to the browser: names that a stranger can own count only where they were configured. And it can lay the page under
one of its own (clickjacking): browsers show it in frames of this dashboard only, and of the hosts that were configured.
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
"""Documents to which only pages of this dashboard are connected."""
_foreign: WeakSet[Any] = WeakSet()


def may_stop(document: Any) -> bool:
    """Return whether the viewer of `document` may stop fits: not before a page of this dashboard has connected."""
    return document in _own


def is_foreign(document: Any) -> bool:
    """Return whether a page has connected to `document` that may not stop fits."""
    return document in _foreign


def trust(document: Any) -> None:
    """Let the viewer of `document` stop fits."""
    _own.add(document)


def is_own(headers: Mapping[str, str], named: Iterable[str] = (), names: Iterable[str] = ()) -> bool:
    """Return whether a page of this dashboard has opened a socket, or one from a host in `named`.

    Parameters
    ----------
    headers : mapping
        Of the request for the socket. A proxy tells the host that was asked in ``X-Forwarded-Host``, which the script
        of a web site cannot set.
    named : iterable of str
        Hosts that were configured, as Bokeh reads them: ``host``, ``host:port``, with ``*`` for a part of either.
    names : iterable of str
        Of this machine.
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
    """Return the hosts in `named` without those that stand for all."""
    return [host.lower() for host in named if host.split(":")[0] != "*"]


def _is_ours(host: str, names: Iterable[str]) -> bool:
    """Return whether nobody else can own the name in `host`: an address, a name without a dot, or one of `names`."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        ip_address(name)
    except ValueError:
        short = bool(name) and "." not in name
        return short or name.endswith(_PRIVATE) or name in {own.lower() for own in names}
    return True


@cache
def machine_names() -> tuple[str, ...]:
    """Return the names of this machine. May ask a name server."""
    return socket.gethostname(), socket.getfqdn()


class Socket(WSHandler):
    """Bokeh's end of a socket, which notes who has opened it."""

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
    """Bokeh's page, which browsers show in no frame of another web site."""

    def set_default_headers(self) -> None:
        hosts = _single(dask.config.get(_ORIGINS, ()))
        self.set_header("Content-Security-Policy", " ".join(["frame-ancestors 'self'", *hosts]))
        if not hosts:  # it knows no list of hosts
            self.set_header("X-Frame-Options", "SAMEORIGIN")


def watch_origins(app: Any) -> None:
    """Have a bokeh application note who opens its sockets, and keep its page out of frames.

    Where the first fails, nobody may stop.
    """
    for rule in app.wildcard_router.rules:
        for kind, ours in ((WSHandler, Socket), (DocHandler, Page)):
            if isinstance(rule.target, type) and issubclass(rule.target, kind):
                rule.target = ours
