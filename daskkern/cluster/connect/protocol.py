"""The version of the messages between clients, scheduler, workers and ranks, and the handler names that include it."""

PROTOCOL = 14
"""Raised whenever the messages change. A process that was started before daskkern was reinstalled still speaks the
version that it has loaded, whatever is installed now: hence the check."""


def handler(verb: str) -> str:
    """Return the name of a worker's handler. Handlers of two versions coexist and never mix."""
    return f"daskkern_{PROTOCOL}_{verb}"
