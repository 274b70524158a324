"""Element-wise mathematics of real and complex numbers."""
