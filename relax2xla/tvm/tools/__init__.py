"""Compilers, libraries and folders that programs for TVM ask for by name."""
