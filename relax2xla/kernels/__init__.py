"""Calls of libraries in jaxlib, and of functions in C++, each with a form in rows (D22)."""
