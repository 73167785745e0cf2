"""The worker plugin of daskkern: handlers through which ranks reach each other, over Dask's own comms.

Nothing here waits and nothing here raises: a handler stores its message and returns, so that the death of a peer
can never leave it hanging in a worker's event loop.
"""

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from distributed import Client, Worker
from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from daskkern.cluster.collectives.mailbox import Membership
from daskkern.cluster.collectives.mailbox_registry import MailboxRegistry
from daskkern.cluster.connect.plugin_loading import loaded_where_installed
from daskkern.cluster.connect.protocol import PROTOCOL, VERSION, handler
from daskkern.cluster.gang.departure import LOST_STATES, Departure
from daskkern.cluster.gang.nanny_plugin import DeparturePlugin
from daskkern.cluster.gang.worker_logs import LogEntry, WorkerLogs
from daskkern.cluster.scheduler.client import install_fits
from daskkern.cluster.scheduler.plugin import question
from daskkern.errors import ClusterError

PLUGIN_NAME = f"daskkern_collectives_{PROTOCOL}"

_PROFILE_STEP_MS, _PROFILE_STEPS = 10_000.0, 20
_TRIES = 4
_SWEEP_MS = 60_000
_ANSWER_S = 10.0


class CollectivesPlugin(WorkerPlugin):
    """Mailboxes on a worker, and the handlers that fill them."""

    name = PLUGIN_NAME
    idempotent = True  # a second registration would replace the mailboxes of running fits

    protocol = 0
    """Protocol of the client that sent this plugin; the class, pickled by its name, is the worker's own."""

    _clock: PeriodicCallback | None = None

    def __init__(self) -> None:
        self.protocol = PROTOCOL

    def __reduce__(self) -> tuple[Any, ...]:
        return loaded_where_installed(WorkerPlugin), (type(self).__module__, type(self).__name__, dict(vars(self)))

    async def setup(self, worker: Worker) -> None:
        self.registry, self.departure, self.logs = MailboxRegistry(), Departure(worker), WorkerLogs(worker.address)
        if self.protocol != PROTOCOL:
            raise ClusterError(
                f"worker {worker.address} speaks version {PROTOCOL} of daskkern's messages and this client version "
                f"{self.protocol or 'unknown'}; install the same daskkern in both environments and restart the older"
            )
        _let_tasks_connect(worker)
        _keep_less_profile(worker)
        answers: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "put": self.registry.deliver,
            "abort": self.registry.abort,
            "stop": self.registry.stop,
            "close": self.registry.close,
            "regroup": self.registry.regroup,
            "progress": self.registry.progress,
            "state": self.registry.state,
            "waits_for": self.registry.waits_for,
            "forget": self.registry.forget,
            "leave": self.departure.leave,
        }
        worker.handlers.update({handler(verb): answer for verb, answer in answers.items()})
        self._clock = PeriodicCallback(partial(_sweep, worker, self.registry), _SWEEP_MS)
        worker.loop.add_callback(self._clock.start)
        self.departure.catch_sigterm()
        _leave_interrupts_to_the_nanny(worker)
        self.logs.attach()
        await announce(worker)

    def teardown(self, worker: Worker) -> None:
        del worker
        if self._clock is not None:  # setup may have refused the worker
            self._clock.stop()
        self.departure.restore_sigterm()
        self.logs.detach()
        for fit in list(self.registry.mailboxes):
            self.registry.abort(fit, None, "this worker is closing")

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Abort a rank whose task was cancelled or released: its result is no longer needed.

        This is how a rank ends after its supervisor, its client or their host has died: the scheduler
        releases their futures, and calls this hook.
        """
        del start, kwargs
        if finish in LOST_STATES and self.registry.mailboxes:
            self.registry.abort_where(lambda member: member.task == key, "the task of this rank was released")

    def _open(self, fit: str, generation: int, rank: int, addresses: tuple[str, ...], task: str) -> bool:
        return self.registry.open(Membership(fit, generation, rank, tuple(addresses), task))


async def announce(worker: Any) -> None:
    """Tell the scheduler that fits may use this worker; repeated with every sweep, should the message be lost."""
    with suppress(OSError, TimeoutError):
        call = getattr(worker.scheduler, question("equipped"))(address=worker.address, version=VERSION)
        await asyncio.wait_for(call, _ANSWER_S)


async def _sweep(worker: Any, registry: MailboxRegistry) -> None:
    await announce(worker)
    await forget_abandoned(worker, registry)


async def forget_abandoned(worker: Any, registry: MailboxRegistry, quiet_s: float = 300.0) -> None:
    """Forget the fits whose supervisor and client were lost together, and with them their commits.

    These are the fits without a running rank, of which no supervisor has asked for `quiet_s`, and which the scheduler
    does not know as active.
    """
    fits = registry.abandoned(quiet_s)
    if not fits:
        return
    try:
        active = await getattr(worker.scheduler, question("active"))(fits=fits)
    except OSError:  # the scheduler is gone or busy: tried again
        return
    if isinstance(active, list | tuple):  # else it does not have the plugin yet
        for fit in set(fits) - set(active):
            registry.forget(fit, registry.generations.get(fit, -1))


def _let_tasks_connect(worker: Worker) -> None:
    """Let tasks of this worker be clients of its cluster: ``dask worker --tls-cert`` sets no client certificate."""
    security: Any = worker.security
    if security is not None and security.tls_client_cert is None and security.tls_worker_cert is not None:
        security.tls_client_cert, security.tls_client_key = security.tls_worker_cert, security.tls_worker_key


def _leave_interrupts_to_the_nanny(worker: Worker) -> None:
    """Let a worker that has a nanny go on at SIGINT.

    Ctrl-C in a terminal, and the interrupt of a notebook, reach all processes of the group: those of a LocalCluster
    would end before the client has asked the fit to stop. The process of the nanny ends its worker when it ends.
    """
    if worker.nanny and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: None)  # SIG_IGN would be inherited by what a task starts


def _keep_less_profile(worker: Worker) -> None:
    """Limit the worker's statistical profile to steps of 10 seconds, and the last 20 of them.

    Dask keeps 1,000 call trees, one a second, twice. Those of a rank, whose calls are deep, grow to 170 MB in a
    quarter of an hour (measured), which the memory plan of a fit does not include.
    """
    cycle = worker.periodic_callbacks.get("profile-cycle")
    if cycle is not None:
        cycle.callback_time = max(cycle.callback_time, _PROFILE_STEP_MS)
    for name in ("profile_history", "profile_keys_history"):
        kept = getattr(worker, name, None)
        if isinstance(kept, deque) and (kept.maxlen or _PROFILE_STEPS + 1) > _PROFILE_STEPS:
            setattr(worker, name, deque(kept, maxlen=_PROFILE_STEPS))


def install(client: Client, timeout_s: float = 30.0, pause_s: float = 0.5) -> bool:
    """Put the plugin on every worker, present and future. Costs one message when it is already installed.

    Returns False when a worker has not answered within `timeout_s`: it hangs. Those that answer then have the plugin,
    also when another dies meanwhile; then it is tried again after `pause_s`.

    Raises
    ------
    ClusterError
        When a worker's process has loaded another version of the messages.
    OSError
        When the scheduler cannot be reached.
    """
    install_fits(client)  # workers announce themselves to it
    plugin = CollectivesPlugin()
    register = client._register_worker_plugin  # the public method has no deadline, and one worker can block it
    for left in reversed(range(_TRIES)):
        try:
            client.sync(register, plugin=plugin, name=PLUGIN_NAME, idempotent=True, callback_timeout=timeout_s)
        except TimeoutError:
            return False
        except OSError:  # if a worker dies during the call, the scheduler does not answer, or waits for it
            if not left:
                raise
            time.sleep(pause_s)
        else:
            break
    with suppress(Exception):  # a nanny without daskkern: its worker has what the nanny leaves it to commit
        nannies = client._register_nanny_plugin
        client.sync(nannies, plugin=DeparturePlugin(), name=DeparturePlugin.name, idempotent=True, callback_timeout=5)
    return True


def registry_of(worker: Worker) -> MailboxRegistry:
    """Return the mailboxes of `worker`."""
    plugin = worker.plugins.get(PLUGIN_NAME)
    if (
        not isinstance(plugin, CollectivesPlugin) or plugin.protocol != PROTOCOL
    ):  # Dask keeps a plugin whose setup has raised
        raise ClusterError(
            f"worker {worker.address} has no daskkern plugin; start the fit through run_gang, which installs it"
        )
    return plugin.registry


def await_task(worker: Worker, seconds: float) -> None:
    """Delay the graceful shutdown of `worker` until the calling task has ended, for at most `seconds`."""
    plugin = worker.plugins.get(PLUGIN_NAME)
    if isinstance(plugin, CollectivesPlugin):
        plugin.departure.expect(str(worker.get_current_task()), seconds)


def logs_of(worker: Worker, fit: str, since: int = 0) -> list[LogEntry]:
    """Return what was logged on `worker` about `fit` after entry number `since`; nothing without the plugin."""
    plugin = worker.plugins.get(PLUGIN_NAME)
    return plugin.logs.of(fit, since) if isinstance(plugin, CollectivesPlugin) else []
