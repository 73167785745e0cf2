"""Help and rejection of wrong options, without importing any module that computes."""
