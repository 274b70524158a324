"""``tvm.testing``: what tests of TVM programs are written with; it needs pytest where they do."""
