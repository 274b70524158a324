"""The walk over a graph of ATen operators, and what converters work with."""
