"""What programs for TVM see of expressions, kernels and contexts, and declare of operators."""
