"""To and from other frameworks' programs in memory: ``relax2xla.interop.jax``."""
