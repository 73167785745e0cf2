"""Protection of clusters that daskkern starts on a machine which others may use, too.

Whoever reaches the port of a Dask scheduler or worker can run code there, and loopback interfaces belong to all users
of a machine. So these clusters speak TLS, with a certificate that exists in the memory of their processes only, and
their dashboard answers only under a path that nobody can guess.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import secrets
import socket
from dataclasses import dataclass
from typing import Any

import dask
from distributed.security import Security
from tornado.web import ErrorHandler

from daskkern.errors import ClusterError

_LINK = "distributed.dashboard.link"
_SECRET_BYTES = 16
_DASHBOARD_PORT = 8787


@dataclass(frozen=True)
class Protection:
    """The certificate of one cluster, and the path of its dashboard."""

    security: Security
    path: str

    @classmethod
    def new(cls) -> "Protection":
        """Return a new one. Raises ClusterError without the package cryptography."""
        try:
            security = Security.temporary()
        except ImportError as error:
            raise ClusterError(
                f"local clusters are encrypted, for which a package is missing ({error}); install cryptography, or fit "
                "in this process with --workers 0"
            ) from error
        return cls(security, secrets.token_urlsafe(_SECRET_BYTES))

    def cluster_settings(self) -> dict[str, Any]:
        """Return the arguments of a LocalCluster."""
        return {
            "security": self.security,
            "protocol": "tls",
            "dashboard_address": dashboard_address(),
            "scheduler_kwargs": {"http_prefix": f"/{self.path}"},
        }

    def dask_settings(self) -> dict[str, str]:
        """Return the settings of Dask with which links to the dashboard contain its path."""
        link = str(dask.config.get(_LINK))
        place, slash, page = link.rpartition("/")
        return {_LINK: f"{place}/{self.path}/{page}" if slash else link}

    def guard(self, cluster: Any) -> None:
        """Let the HTTP server of a started cluster refuse all other paths: Dask redirects ``/`` to the right one."""
        application = getattr(getattr(cluster, "scheduler", None), "http_application", None)
        if application is None:
            return
        find, inside = application.find_handler, f"/{self.path}/"

        def found(request: Any, **settings: Any) -> Any:
            if request.path.startswith(inside):
                return find(request, **settings)
            return application.get_handler_delegate(request, ErrorHandler, {"status_code": 404})

        application.find_handler = found


def dashboard_address() -> str:
    """Return Dask's usual dashboard address, or one with any port when that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _DASHBOARD_PORT))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{_DASHBOARD_PORT}"
