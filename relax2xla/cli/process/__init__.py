"""The process around a command: what it prints, its settings, signals, and what ends it."""
