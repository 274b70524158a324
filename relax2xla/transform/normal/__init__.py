"""The plain form of a program: aliases read directly, dead code gone, calls inlined."""
