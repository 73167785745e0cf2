"""Memory and time of a fit before it runs."""
