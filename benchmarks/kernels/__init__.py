"""Kernels of TVMScript, and the forms of products and convolutions that are chosen among."""
