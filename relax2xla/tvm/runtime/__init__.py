"""What programs for TVM run on: arrays, devices, containers, executables, machines, sessions."""
