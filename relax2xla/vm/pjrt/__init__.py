"""XLA through jaxlib: compile, keep, place, run."""
