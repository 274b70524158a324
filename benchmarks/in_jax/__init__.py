"""Imported models as functions of JAX."""
