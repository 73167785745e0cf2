"""One run of a fit: in this process or on a cluster, rank by rank, epoch by epoch."""
