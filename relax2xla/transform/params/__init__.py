"""Weights: bound, folded, lifted out of the program."""
