"""The parts of ``kernel_products.py``: contenders, clock, sections, targets and plot."""
