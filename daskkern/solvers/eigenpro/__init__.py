"""EigenPro over kernel columns and explicit features."""
