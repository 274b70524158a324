"""Programs written for TVM run as they are (design decision D23).

``python -m relax2xla.tvm prog.py [args]``, or ``import relax2xla.tvm.install`` before ``import
tvm``: from then on relax2xla serves ``import tvm``. What it lacks raises with its name.
"""
