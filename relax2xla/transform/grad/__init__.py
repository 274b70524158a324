"""The derivative: adjoint functions by reverse-mode differentiation."""
