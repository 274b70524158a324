"""TVMScript: printer, parser, and the namespaces R, I and T."""

from __future__ import annotations
