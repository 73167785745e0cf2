"""Names of Dask tasks that say on the dashboard what they do."""

import uuid


def task_name(role: str) -> str:
    """Return a new key, which Dask's pages group and colour as ``daskkern_<role>``. Write `role` with underscores."""
    return f"daskkern_{role}-{uuid.uuid4().hex}"
