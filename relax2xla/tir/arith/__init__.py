"""Integer arithmetic: normal forms, bounds and proofs (the names of ``tvm.arith``)."""
