"""The benchmarks' networks written by hand in plain JAX: what the compiler has to match."""
