"""Saved executables: one file, ``model.r2x``, that needs neither torch, onnx nor the source model.

A zip file without pickle (see ``vm.save.archive``):

* ``manifest.json``: versions, checksums, flags, the signature of each function, its weights;
* ``tensors.safetensors``: every array once, uncompressed and aligned; it is mapped into memory;
* ``module.relax``: the functions as Relax text, for call shapes that have no program yet;
* ``code.json``: bytecode, where there is any;
* ``programs/*``: StableHLO of functions of static shapes (portable artefacts where possible);
* ``compiled/*``: their machine code, for a machine like the one that saved them;
* ``native/*``: compiled libraries of external modules.

Machine code is run as it is, like a shared library's: load it from files that you trust, or pass
``compiled=False``. Libraries are loaded with ``native=True`` alone. Everything else in a file is
only data.
"""
