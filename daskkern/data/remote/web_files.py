"""Files of web servers by their full URL, including queries such as the signature of a presigned URL."""

import os
from functools import lru_cache
from typing import Any

from daskkern.data.remote.errors import INSTALL
from daskkern.data.remote.stores import patience
from daskkern.errors import StoreError


class WebFiles:
    """The methods of fsspec file systems that files need. Errors are those of obstore."""

    def info(self, url: str) -> dict[str, Any]:
        """Return type, size and version of a file. FileNotFoundError where there is none."""
        import obstore  # optional package

        store = _store(url, os.getpid())
        try:
            found = obstore.head(store, "")
        except FileNotFoundError:
            raise
        except Exception:  # presigned URLs allow one method
            found = obstore.get(store, "", options={"range": (0, 1)}).meta
        return {**found, "type": "file"}

    def cat_file(self, url: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end` of a file."""
        import obstore  # optional package

        return bytes(obstore.get_range(_store(url, os.getpid()), "", start=start, end=end))


@lru_cache(maxsize=64)
def _store(url: str, process: int) -> Any:
    del process  # connections are not shared with a forked process
    try:
        import obstore.store  # optional package
    except ImportError as error:
        raise StoreError(
            f"reading web addresses needs the package obstore, which is not installed; {INSTALL}"
        ) from error
    return obstore.store.HTTPStore.from_url(url, **patience())
