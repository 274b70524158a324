"""Calls into libraries that jaxlib carries, each with a form in rows (design decision D22)."""
