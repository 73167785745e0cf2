"""The nanny plugin of daskkern: it makes a worker leave its fits before its nanny closes it.

A nanny gives its worker a few seconds to close: 8 at SIGTERM, 4 when its cluster shrinks. A commit may take longer.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from typing import Any

from distributed.diagnostics.plugin import NannyPlugin

from daskkern.cluster.connect.leaving import let_go
from daskkern.cluster.connect.plugin_loading import loaded_where_installed
from daskkern.cluster.connect.protocol import PROTOCOL


class DeparturePlugin(NannyPlugin):
    """Waits until the worker of a closing nanny may go."""

    name = f"daskkern_departure_{PROTOCOL}"
    idempotent = True

    def __reduce__(self) -> tuple[Any, ...]:
        return loaded_where_installed(NannyPlugin), (type(self).__module__, type(self).__name__, dict(vars(self)))

    async def teardown(self, nanny: Any) -> None:
        """Wait for the worker, if its process runs."""
        address = nanny.worker_address
        if address is not None and nanny.is_alive():
            await let_go(nanny.rpc, address)
