"""Handles of fits on a cluster: their status, events and model."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distributed import Client

from daskkern.cluster.connect.clients import client_at
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.fits import FitStatus, event_of
from daskkern.data.remote.stores import public
from daskkern.display import html_facts
from daskkern.errors import ClusterError, FitCancelledError
from daskkern.events import Event, Listener, silent
from daskkern.models import KernelModel, load_model
from daskkern.training.jobs.install_dashboard import show_fits

_POLL_S = 0.5
_CONNECT_S = 10.0


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time in seconds since 1970; 0.0 for a batch, of which only the last is known."""

    time: float
    event: Event


def list_fits(client: Client) -> tuple[FitStatus, ...]:
    """Return the fits that the scheduler knows, oldest first: waiting, running, and the last that ended.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.

    Raises
    ------
    ClusterError
        When the scheduler does not answer.
    """
    show_fits(client)
    return tuple(FitStatus.from_message(message) for message in ask_fits(client, "fits"))


def find_fit(client: Client, fit: str | None) -> FitStatus:
    """Return the fit with the identifier `fit`, or with a unique prefix of it, or with the name `fit`.

    Of several with the name, the only one that has not ended is meant, else the last one; so does None of all fits.

    Raises
    ------
    ClusterError
        When no fit matches, or several do.
    """
    known = list_fits(client)
    if fit is None:
        found = _current(known)
    else:
        found = [status for status in known if status.metadata.fit.startswith(fit)]
        found = found or _current([status for status in known if status.metadata.name == fit])
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{status.metadata.fit} ({status.metadata.name})" for status in (found or known))
    if not found:
        address = client.scheduler_info(n_workers=0)["address"]
        raise ClusterError(
            f"no fit {'' if fit is None else repr(fit) + ' '}is known at {address}"
            + (f"; known are {names}" if names else "; a scheduler that was restarted forgets what ran before")
        )
    raise ClusterError(f"several fits match: {names}; name one")


def _current(known: Sequence[FitStatus]) -> list[FitStatus]:
    return [status for status in known if status.active] or list(known[-1:])


def attach(client: Client, fit: str | None = None) -> "FitHandle":
    """Return the handle of any fit on a cluster.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    fit : str or None
        The identifier of the fit or a unique prefix of it; None means the only one that has not ended, else the last.
    """
    status = find_fit(client, fit)
    return FitHandle(
        status.metadata.fit, str(client.scheduler_info(n_workers=0)["address"]), status.metadata.out, client
    )


class FitHandle:
    """A fit on a cluster, wherever it was submitted.

    Parameters
    ----------
    fit : str
        Its identifier.
    address : str
        Address of the scheduler.
    out : str
        Location of its model.
    client : Client or None
        The client to use; None connects for each call, so that the handle can be kept and pickled.
    """

    def __init__(self, fit: str, address: str, out: str, client: Client | None = None) -> None:
        self.fit, self.address, self.out = fit, address, out
        self._client = client
        self._security = None if client is None else client.security

    def __repr__(self) -> str:
        return f"FitHandle({self.fit!r}, {self.address!r}, out={public(self.out)!r})"

    def _repr_html_(self) -> str:
        facts = [("scheduler", self.address), ("model", public(self.out)), ("state", "see .status()")]
        return html_facts(f"FitHandle {self.fit}", facts)

    def __getstate__(self) -> Mapping[str, Any]:
        return {**self.__dict__, "_client": None}  # connections cannot be pickled

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        if self._client is not None and self._client.status == "running":
            yield self._client
            return
        with client_at(self.address, _CONNECT_S, self._security) as client:
            yield client

    def status(self) -> FitStatus:
        """Return the status of the fit. Raises ClusterError when the scheduler is gone or does not know the fit."""
        with self._connected() as client:
            return find_fit(client, self.fit)

    def timed_events(self) -> tuple[TimedEvent, ...]:
        """Return the events until now, without those of single batches."""
        return self.events_since(0)[0]

    def events_since(self, number: int) -> tuple[tuple[TimedEvent, ...], int]:
        """Return the events from this number on, without those of single batches, and the number to continue with."""
        with self._connected() as client:
            answer = ask_fits(client, "fit_events", fit=self.fit, since=number)
        return _timed_events(answer["events"]), int(answer["next"])

    def cancel(self, *, abort: bool = False) -> bool:
        """Request the end of the fit: after this step, with the model so far and a checkpoint; with `abort` at once.

        Returns immediately; False when the fit has ended already.
        """
        with self._connected() as client:
            return bool(ask_fits(client, "cancel", fit=self.fit, abort=abort))

    def watch(self, listener: Listener = silent, timeout_s: float | None = None) -> FitStatus:
        """Pass all events, past and future, to `listener` until the fit has ended; return its status.

        Raises
        ------
        TimeoutError
            When the fit has not ended after `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        at = 0
        latest = ""
        with self._connected() as client:
            while True:
                answer = ask_fits(client, "fit_events", fit=self.fit, since=at)
                for timed in _timed_events(answer["events"]):
                    listener(timed.event)
                if answer["latest"] and str(answer["latest"]) != latest:  # as text: NaN differs from itself
                    latest = str(answer["latest"])
                    listener(event_of(answer["latest"]))
                at = answer["next"]
                if not answer["active"]:
                    return find_fit(client, self.fit)
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"fit {self.fit} has not ended in {timeout_s:g} s")
                time.sleep(_POLL_S)

    def _model(self) -> KernelModel:
        if not self.out:
            raise ClusterError(f"fit {self.fit} wrote no model: its model is in the process that submitted it")
        model = load_model(self.out)
        if model.provenance.get("fit") != self.fit:
            raise ClusterError(
                f"the model at {self.out} is that of a later fit than {self.fit}; write each to a place of its own"
            )
        return model

    def result(self, timeout_s: float | None = None) -> KernelModel:
        """Wait for the end and return the model.

        Raises
        ------
        FitCancelledError
            When the fit was cancelled without a model.
        ClusterError
            When the fit failed, with the reason.
        TimeoutError
        """
        status = self.watch(timeout_s=timeout_s)
        if status.state in ("finished", "interrupted"):
            return self._model()
        what = status.error or f"it ended as {status.state}"
        kind = FitCancelledError if status.state == "cancelled" else ClusterError
        raise kind(f"fit {self.fit} has no model: {what}")


def _timed_events(messages: list[Mapping[str, Any]]) -> tuple[TimedEvent, ...]:
    return tuple(TimedEvent(float(message.get("time", 0.0)), event_of(message)) for message in messages)
