"""Linear algebra: products, factorisations, and what is made of them."""
