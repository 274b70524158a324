"""Other forms of what XLA compiles badly for CPUs (design decision D22)."""
