"""Importers: foreign model formats to Relax.

Installed as ``relax2xla.importers``. Each sub-package turns one source format into an
``IRModule`` and imports its framework only when it is itself imported:

``relax2xla.importers.torch``      ``torch.export`` programs, FX graphs, ``torch.compile``
``relax2xla.importers.onnx``       ONNX models
``relax2xla.importers.stablehlo``  StableHLO text, bytecode and portable artefacts

Code here uses absolute imports and the public names of ``relax2xla`` only.
"""
