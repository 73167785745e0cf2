"""Calls of clients, supervisors and ranks to the fits plugin on the scheduler."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from typing import Any

from distributed import Client

from daskkern.cluster.connect.membership import ask_scheduler
from daskkern.cluster.connect.protocol import PROTOCOL
from daskkern.cluster.scheduler.plugin import FitsPlugin, question
from daskkern.errors import ClusterError


def install_fits(client: Client) -> None:
    """Put the plugin on the scheduler. Costs one message when it is already installed.

    Raises ClusterError when the scheduler cannot load it.
    """
    try:
        client.register_plugin(FitsPlugin())
    except ClusterError:  # raised by the plugin
        raise
    except AttributeError as error:  # it has no `received`
        raise ClusterError(
            f"the scheduler's daskkern is older than this client's, which speaks version {PROTOCOL} of its messages; "
            "install the same daskkern in both environments and restart the scheduler"
        ) from error
    except Exception as error:  # whatever the scheduler raised while it loaded the class
        raise ClusterError(
            f"the scheduler cannot keep the list of fits ({type(error).__name__}: {error}); install daskkern in its "
            "environment, of the same version as here, and restart it"
        ) from error


def ask_fits(client: Client, verb: str, **arguments: Any) -> Any:
    """Call the plugin on the scheduler. Raises ClusterError when the scheduler is gone, or has lost the plugin."""
    try:
        answer = ask_scheduler(client, question(verb), **arguments)
    except ClusterError:
        raise
    except Exception as error:  # as the handler raised it
        raise ClusterError(f"the scheduler cannot answer about fits: {type(error).__name__}: {error}") from error
    if answer is None:  # Dask's answer to an unknown question
        raise ClusterError(
            "the scheduler was restarted and has forgotten the fits; continue interrupted fits with --resume"
        )
    return answer
