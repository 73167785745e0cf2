"""Names of Dask tasks, chosen for the dashboard."""

import uuid


def task_name(role: str) -> str:
    """Return a new key, which Dask's pages group and color as ``daskkern_<role>``. Write `role` with underscores."""
    return f"daskkern_{role}-{uuid.uuid4().hex}"
