"""Products and convolutions of integers of 8 bits by functions in C++, and what joins them."""
