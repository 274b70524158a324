"""Calls of XLA:CPU into oneDNN, which jaxlib carries: what is called, and when that is faster.

XLA:CPU runs them, but nothing in jaxlib makes them. A call whose configuration oneDNN does not take
ends the process, so every call is described by a :class:`~relax2xla.kernels.onednn.calls.Call`,
which says what is wrong with it, and each feature that it needs has run in a child process first
(:mod:`relax2xla.vm.pjrt.onednn`).
"""
