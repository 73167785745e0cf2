"""The version of the messages between clients, scheduler, workers and ranks, and the handler names that include it."""

from importlib.metadata import PackageNotFoundError, version

PROTOCOL = 17
"""Raised whenever the messages change. A process that was started before daskkern was reinstalled still speaks the
version that it has loaded, whatever is installed now: hence the check."""


def package_version() -> str:
    """Return the version of the installed package; "source" for a source tree that was never installed."""
    try:
        return version("daskkern")
    except PackageNotFoundError:
        return "source"


VERSION = package_version()
"""The version that this process has loaded; the package may be installed in another one since."""


def handler(verb: str) -> str:
    """Return the name of a worker's handler. Handlers of two versions coexist and never mix."""
    return f"daskkern_{PROTOCOL}_{verb}"
