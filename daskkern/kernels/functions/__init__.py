"""Kernel functions, one class and one file each."""
