"""Removal of the event topics of fits from the scheduler; Dask itself would keep each one's last 1000 events."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import re
from typing import Any

from daskkern.cluster.scheduler.registry import FitRegistry

TOPIC = "daskkern-"
"""Prefix of the topic of a fit, before its identifier."""

_KEPT_S = 60.0
"""How long a topic outlives its fit. The events themselves are in the registry."""


class EventTopics:
    """The topics of the fits of `registry` on `scheduler`."""

    def __init__(self, scheduler: Any, registry: FitRegistry) -> None:
        self._scheduler, self._registry = scheduler, registry

    def forget(self, now: float) -> None:
        """Remove the topics of the fits that ended a minute before `now`, in seconds since 1970, or are unknown."""
        topics = getattr(getattr(self._scheduler, "_broker", None), "_topics", {})  # Dask has no public way to it
        for topic in [name for name in topics if re.fullmatch(f"{TOPIC}[0-9a-f]{{12}}", name)]:
            record = self._registry.records.get(topic.removeprefix(TOPIC))
            if record is None or (not record.active and now - record.ended > _KEPT_S):
                del topics[topic]
