"""The version of the package, as pyproject.toml has it; saved files name it."""

__version__ = "0.8.0"
