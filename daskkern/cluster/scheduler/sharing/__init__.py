"""Sharing of workers between fits: admission, preemption and quotas."""
