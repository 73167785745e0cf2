"""The version of the messages between clients, scheduler, workers and ranks, and the names that carry it."""

PROTOCOL = 6
"""Raised whenever the messages change. A process that was started before daskkern was installed anew still speaks the
version that it has loaded, whatever is installed by now: so it is asked for."""


def handler(verb: str) -> str:
    """Return the name of a worker's handler. Those of two versions stand beside each other, and never mix."""
    return f"daskkern_{PROTOCOL}_{verb}"
