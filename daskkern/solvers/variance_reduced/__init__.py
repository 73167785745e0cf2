"""Stochastic gradients that are corrected by a full gradient, taken in passes of its own."""
