"""An S3 server on the loopback interface that fails, is slow and breaks off when told to. Needs the package moto."""

import logging
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

_BUSY = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We encountered an error.</Message></Error>"
_DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclass
class Faults:
    """What goes wrong: with every n-th request of each kind, 0 for none of them.

    Attributes
    ----------
    fail_every : int
        Answered with 500, after the request was carried out.
    slow_every : int
        Of the reads: the answer comes in pieces, with pauses.
    break_every : int
        Of the reads: the connection is closed in the middle of the answer.
    pause_s : float
        Seconds in the middle of a slow answer.
    deny_after : int or None
        Every request after so many is answered with 403: what follows does not happen, as after a kill.
    """

    fail_every: int = 0
    slow_every: int = 0
    break_every: int = 0
    pause_s: float = 0.1
    deny_after: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """How often each happened, and ``requests``, ``GET`` and ``PUT`` in all."""

    def clear(self) -> None:
        """Let everything go well from now on, and count anew."""
        self.fail_every = self.slow_every = self.break_every = 0
        self.pause_s, self.deny_after = 0.1, None
        self.counts.clear()


@dataclass(frozen=True)
class ObjectServer:
    """A running server: its address, its one bucket, and its faults, which may be changed at any time."""

    endpoint: str
    bucket: str
    faults: Faults

    def url(self, name: str) -> str:
        """Return the URL of a place in the bucket."""
        return f"s3://{self.bucket}/{name}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which the server is reached."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def reaching(client: Client, server: ObjectServer) -> Iterator[Client]:
    """Let the workers of a client find the server."""
    client.run(_set_environment, server.environment())
    try:
        yield client
    finally:
        client.run(_set_environment, dict.fromkeys(server.environment(), ""))


def _set_environment(values: dict[str, str]) -> None:
    for name, value in values.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


@contextmanager
def object_server(bucket: str = "bucket") -> Iterator[ObjectServer]:
    """Yield a server with an empty bucket, in a thread of this process."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # optional package
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    faults = Faults()
    application = _Unreliable(DomainDispatcherApplication(create_backend_app), faults)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=30).close()
        yield ObjectServer(endpoint, bucket, faults)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


class _Unreliable:
    """WSGI middleware that puts faults between a client and an application."""

    def __init__(self, application: Callable[..., Iterable[bytes]], faults: Faults) -> None:
        self._application, self._faults = application, faults
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        faults, method = self._faults, environ["REQUEST_METHOD"]
        reads = method == "GET"
        with self._lock:
            self._count("requests")
            number = faults.counts["requests"]
            self._count(method)
            fails = self._due("failed", faults.fail_every, "requests")
            slow = reads and self._due("slowed", faults.slow_every, "GET")
            broken = reads and not slow and self._due("broken", faults.break_every, "GET")
        if faults.deny_after is not None and number > faults.deny_after:
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED]
        if not (fails or slow or broken):
            return self._application(environ, start_response)
        answered: list[Any] = []

        def keep(*parts: Any) -> None:
            answered[:] = parts

        body = b"".join(self._application(environ, keep))
        if fails:
            start_response("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [_BUSY]
        start_response(*answered[:2])
        return _pieces(body, faults.pause_s, breaks=broken)

    def _count(self, name: str) -> None:
        self._faults.counts[name] = self._faults.counts.get(name, 0) + 1

    def _due(self, name: str, every: int, among: str) -> bool:
        due = every > 0 and self._faults.counts[among] % every == 0
        if due:
            self._count(name)
        return due


def _pieces(body: bytes, pause_s: float, *, breaks: bool) -> Iterator[bytes]:
    half = len(body) // 2
    yield body[:half]
    if breaks:
        raise ConnectionAbortedError("the server breaks off, as it was told to")
    time.sleep(pause_s)
    yield body[half:]
