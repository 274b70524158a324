"""Convolutions in other forms: sums of products, products of matrices, minimal filtering."""
