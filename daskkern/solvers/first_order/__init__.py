"""Stochastic first-order methods without a preconditioner."""
