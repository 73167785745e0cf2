"""A gang: ranks on the workers of a cluster, their supervisor, and recovery from lost workers."""
