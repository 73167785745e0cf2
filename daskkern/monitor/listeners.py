"""Event listeners that forward events to other listeners."""

import threading
from collections.abc import Sequence

from daskkern.events import Event, Listener


def all_of(listeners: Sequence[Listener]) -> Listener:
    """Return a listener that forwards each event to all `listeners`, in order."""
    if len(listeners) == 1:
        return listeners[0]

    def forward(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return forward


def one_at_a_time(listener: Listener) -> Listener:
    """Return a listener that several threads may call: `listener` receives one event at a time."""
    lock = threading.Lock()

    def forward(event: Event) -> None:
        with lock:
            listener(event)

    return forward
