"""Quantised models in arithmetic of 8 bits: what is an integer in disguise, and its calls."""
