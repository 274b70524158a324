"""From a module to regions for XLA and bytecode for the rest."""
