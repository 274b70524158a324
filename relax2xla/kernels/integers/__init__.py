"""Products and convolutions of 8-bit integers by a function in C++, and what stands between them."""
