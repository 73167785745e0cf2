"""Plugins of Dask that do nothing in a process without daskkern, or with one that speaks other messages.

Dask sends a plugin to every worker and every nanny that joins, and one that cannot load it does not start: clusters
that are used for other work, too, would lose their workers without daskkern. Where a plugin raises on one worker,
Dask reports that to every client that registers it: one worker with an older daskkern would end all fits.
"""

import importlib
from collections.abc import Callable
from typing import Any

from daskkern.cluster.connect.protocol import PROTOCOL

_PROTOCOL_MODULE = "daskkern.cluster.connect.protocol"


def loaded_where_installed(absent: type[Any]) -> Callable[[str, str, dict[str, Any]], Any]:
    """Return the function that loads a plugin from its module, class and attributes; `absent` where it cannot, and
    where daskkern is another one.

    A closure: pickled by value, it needs nothing from daskkern. `absent` is a class of Dask.
    """
    protocol, where = PROTOCOL, _PROTOCOL_MODULE

    def load(module: str, name: str, attributes: dict[str, Any]) -> Any:
        try:
            if protocol != importlib.import_module(where).PROTOCOL:
                return absent()
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):  # older versions have other modules
            return absent()
        plugin = kind.__new__(kind)
        vars(plugin).update(attributes)
        return plugin

    return load
