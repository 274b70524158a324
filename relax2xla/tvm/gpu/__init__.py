"""TVM's kernels, schedules and tuning for GPUs: programs may name them, and XLA decides."""
