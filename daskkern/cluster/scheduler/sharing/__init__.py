"""Sharing of workers between fits: who is granted which, who is preempted, and what users may have."""
