"""``python -m relax2xla``: the command line."""

from __future__ import annotations

import sys

from relax2xla.cli import main

sys.exit(main())
