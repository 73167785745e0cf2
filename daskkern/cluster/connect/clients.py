"""Clients of a cluster given by its address, a scheduler file, a cluster object or another client."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import json
import os
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from distributed import Client
from distributed.comm.core import FatalCommClosedError, connect
from distributed.security import Security

from daskkern.backend.current import current
from daskkern.cluster.connect.connecting import connected
from daskkern.errors import ClusterError, SpecError

ClusterLike: TypeAlias = Any
"""A client, asynchronous or not, the address of a scheduler, the path of a scheduler file, or an object with a
``scheduler_address``: a LocalCluster, an SSHCluster, one of dask-jobqueue, dask-kubernetes or Coiled."""

_CONNECT_S = 10.0


@dataclass(frozen=True)
class Certificates:
    """The PEM files of a connection to a TLS cluster.

    Parameters
    ----------
    ca
        Certificate of the authority that signed the scheduler's.
    cert, key
        Certificate and private key of this client.
    """

    ca: str
    cert: str
    key: str

    def security(self) -> Security:
        """Return Dask's security settings; a connection that is not encrypted is then refused.

        Raises
        ------
        SpecError
            When a file cannot be read, or is not of the expected kind.
        """
        for what, path in (("CA file", self.ca), ("certificate", self.cert), ("key", self.key)):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise SpecError(f"the TLS {what} {path} cannot be read: {error.strerror}; give a PEM file") from None
        try:
            ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            raise SpecError(
                f"the TLS CA file {self.ca} holds no certificate ({error.reason}); give a PEM file"
            ) from None
        try:
            ssl.create_default_context().load_cert_chain(self.cert, self.key)
        except ssl.SSLError as error:
            raise SpecError(
                f"the TLS certificate {self.cert} and the key {self.key} do not match ({error.reason or error}); "
                "give the PEM files of one client"
            ) from None
        return Security(
            tls_ca_file=self.ca, tls_client_cert=self.cert, tls_client_key=self.key, require_encryption=True
        )


def certificates(ca: str | None, cert: str | None, key: str | None) -> Certificates | None:
    """Return the certificates at three paths, or None without any. Raises SpecError when only some are given."""
    if ca is None and cert is None and key is None:
        return None
    if ca is None or cert is None or key is None:
        missing = [name for name, path in (("CA file", ca), ("certificate", cert), ("key", key)) if path is None]
        raise SpecError(f"TLS needs a CA file, a certificate and a key; got no {missing[0]}; give all three")
    return Certificates(ca, cert, key)


@contextmanager
def client_at(address: str, timeout_s: float = _CONNECT_S, security: Security | None = None) -> Iterator[Client]:
    """Connect to the scheduler at `address` within the context, as the current client.

    Without `security`, the settings of Dask's own configuration are used.

    Raises
    ------
    SpecError
        For an address with a user or password.
    ClusterError
        When it does not answer within `timeout_s`, or TLS refuses the connection.
    """
    if "@" in address.partition("://")[2]:
        raise SpecError(f"got the scheduler {address} with a user or password; Dask has neither: leave them out")
    # Current here, but not the default of the process: one that cannot connect, or cannot close in time, would stay
    # the default, and Dask would wait for it in every later computation.
    try:
        _check_reachable(address, timeout_s, security)
        client = connected(lambda: Client(address, timeout=timeout_s, security=security, set_as_default=False))
    except ClusterError:
        raise
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(_refusal(address, error, encrypts=security is not None)) from error
    with client, current(client):
        yield client


def _check_reachable(address: str, timeout_s: float, security: Security | None) -> None:
    """Open a connection to the scheduler, ask what it is, and close it again. Raises what the transport raises.

    Dask's own client waits without limit for the first message of a scheduler that accepted the connection and then
    refused the certificate. Runs in a separate thread, because this one may have a running event loop.
    """
    arguments = (security or Security()).get_connection_args("client")

    async def open_and_close() -> None:
        comm = await asyncio.wait_for(connect(address, timeout=timeout_s, **arguments), timeout_s)
        try:
            await comm.write({"op": "identity", "n_workers": 0, "reply": True})
            answer = await asyncio.wait_for(comm.read(), timeout_s)
        finally:
            await comm.close()
        if answer.get("type") != "Scheduler":  # workers and nannies know no number of workers, and answer with an error
            what = "of a worker" if "Worker" in str(answer.get("exception_text")) else "of a nanny"
            raise ClusterError(
                f"{address} is the address {what}, not of a scheduler; give the scheduler's, which 'dask scheduler' "
                "prints when it starts"
            )

    if address.startswith("inproc://"):  # reached from its own process only, and by its own loop
        return
    with ThreadPoolExecutor(1, "daskkern-reachable") as thread:
        thread.submit(asyncio.run, open_and_close()).result()


def scheduler_file_address(path: str | os.PathLike[str]) -> str:
    """Return the address in a scheduler file that ``dask scheduler --scheduler-file`` wrote.

    Raises
    ------
    ClusterError
        When it cannot be read or holds no address.
    """
    try:
        address = json.loads(Path(path).read_text())["address"]
    except OSError as error:
        raise ClusterError(
            f"the scheduler file {os.fspath(path)} cannot be read: {error.strerror}; see that the scheduler runs, and "
            "that this machine sees its folder"
        ) from None
    except (ValueError, KeyError, TypeError):
        address = None
    if not isinstance(address, str):
        raise ClusterError(
            f"{os.fspath(path)} is not a scheduler file; give the one that 'dask scheduler --scheduler-file' writes"
        )
    return address


@contextmanager
def client_of(cluster: ClusterLike, timeout_s: float = _CONNECT_S) -> Iterator[Client | None]:
    """Yield a synchronous client of `cluster`, or None for None.

    A synchronous client is yielded unchanged and stays open. For everything else a client is created in this thread,
    with the same TLS settings, and closed at the end.

    Raises
    ------
    ClusterError
        When the cluster does not answer, or cannot because its event loop runs in this thread.
    SpecError
        When `cluster` is none of these.
    """
    if cluster is None or (isinstance(cluster, Client) and not _is_asynchronous(cluster)):
        yield cluster
        return
    address, security = _address_and_security(cluster)
    _check_loop(cluster)
    with client_at(address, timeout_s, security) as client:
        yield client


def _is_asynchronous(client: Client) -> bool:
    """Return whether its methods return awaitables: by construction, or because this is its own event loop."""
    return bool(client.asynchronous or getattr(client, "_asynchronous", False))


def _address_and_security(cluster: ClusterLike) -> tuple[str, Security | None]:
    if isinstance(cluster, Client):
        if cluster.scheduler is None:
            raise ClusterError(
                "this asynchronous Dask client is not connected; await it before the fit, or give the fit the address"
            )
        return str(cluster.scheduler.address), cluster.security
    if isinstance(cluster, os.PathLike) or (isinstance(cluster, str) and _is_file(cluster)):
        return scheduler_file_address(cluster), None
    if isinstance(cluster, str):
        return cluster, None
    address, security = getattr(cluster, "scheduler_address", None), getattr(cluster, "security", None)
    if isinstance(address, str) and "://" not in address:  # what an unconnected Dask cluster returns
        raise ClusterError(
            f"the cluster {type(cluster).__name__} is not connected; start it, or await it, before the fit"
        )
    if not isinstance(address, str):
        raise SpecError(
            f"got client={cluster!r}; expected a Dask client, a running cluster, the address of a scheduler such "
            "as 'tcp://host:8786', or the path of a scheduler file"
        )
    return address, security if isinstance(security, Security) else None


def _is_file(text: str) -> bool:
    return "://" not in text and (text.endswith(".json") or os.path.isfile(text))


def _check_loop(cluster: ClusterLike) -> None:
    """Raise ClusterError if this thread runs the event loop that the scheduler needs."""
    owner = cluster.cluster if isinstance(cluster, Client) else cluster
    loop = getattr(getattr(getattr(owner, "scheduler", None), "loop", None), "asyncio_loop", None)
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        return
    if loop is here:
        raise ClusterError(
            "the scheduler of this cluster runs in the event loop that the fit would keep waiting; "
            "fit in a thread: await asyncio.to_thread(model.fit, X, y)"
        )


def _refusal(address: str, error: Exception, *, encrypts: bool) -> str:
    """Return a sentence that explains why there is no connection."""
    if address.startswith("tls://") and isinstance(error, TypeError):
        return (
            f"the cluster at {address} is encrypted, and no certificates were given; give --tls-ca, --tls-cert and "
            "--tls-key, or set distributed.comm.tls in Dask's configuration"
        )
    if isinstance(error, FatalCommClosedError) and not isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return (
            f"the Dask scheduler at {address} refused the certificate of this client ({error.__cause__ or error}); "
            "give one that the authority of this cluster has signed"
        )
    if isinstance(error, FatalCommClosedError):
        return (
            f"the certificate of the Dask scheduler at {address} was not signed by the authority of the CA file; give "
            "the CA file of this cluster"
        )
    if encrypts and not address.startswith("tls://"):
        return (
            f"certificates were given for {address}, which is not encrypted; give the tls:// address, or leave them out"
        )
    found = str(error) or type(error).__name__
    if address.startswith(("http://", "https://")):
        return f"{address} is the address of a page; give that of the scheduler, such as tcp://host:8786"
    if isinstance(error, ValueError):  # Dask cannot read the address
        return f"got {address} as the address of a scheduler; expected one such as tcp://host:8786, with its port"
    if not address.startswith("tls://") and "reset by peer" in f"{found} {error.__cause__}":
        return (
            f"the Dask scheduler at {address} closed the connection ({found}); a cluster with TLS has a tls:// address "
            "and wants certificates"
        )
    hint = ", that it accepts this certificate" if address.startswith("tls://") else ""
    return (
        f"no Dask scheduler answers at {address} ({found}); see that it runs{hint}, or start one with 'dask scheduler'"
    )
