"""Executables as files."""
