"""Names of Dask tasks that describe their purpose on the dashboard."""

import uuid


def task_name(role: str) -> str:
    """Return a new key, which Dask's pages group and color as ``daskkern_<role>``. Write `role` with underscores."""
    return f"daskkern_{role}-{uuid.uuid4().hex}"
