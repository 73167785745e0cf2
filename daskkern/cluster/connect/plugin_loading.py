"""Plugins of Dask that do nothing in a process without daskkern.

Dask sends a plugin to every worker and every nanny that joins, and one that cannot load it does not start: clusters
that are used for other work, too, would lose their workers without daskkern.
"""

import importlib
from collections.abc import Callable
from typing import Any


def loaded_where_installed(absent: type[Any]) -> Callable[[str, str, dict[str, Any]], Any]:
    """Return the function that loads a plugin from its module, class and attributes; `absent` where it cannot.

    A closure: pickled by value, it needs nothing from daskkern. `absent` is a class of Dask.
    """

    def load(module: str, name: str, attributes: dict[str, Any]) -> Any:
        try:
            kind = getattr(importlib.import_module(module), name)
        except ImportError:
            return absent()
        plugin = kind.__new__(kind)
        vars(plugin).update(attributes)
        return plugin

    return load
