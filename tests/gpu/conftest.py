"""The array module of the GPU tests; all are skipped where there is no GPU."""

from types import ModuleType

import pytest

from daskkern.backend.namespace import namespace_for
from daskkern.errors import ClusterError


@pytest.fixture(scope="session")
def cupy() -> ModuleType:
    try:
        return namespace_for("gpu")
    except ClusterError as error:
        pytest.skip(str(error))
