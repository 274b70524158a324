"""One call of a machine: its arguments, programs, weights and state."""
