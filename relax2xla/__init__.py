"""relax2xla: Relax IR lowered to StableHLO and compiled by XLA."""
