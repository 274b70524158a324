"""Laws of algebra: products, sums, concatenations and reshapes in another order."""
