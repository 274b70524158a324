"""The whole command line: commands join ``app`` when the files of their arguments are loaded."""

from __future__ import annotations

from relax2xla.cli.arguments import models as models
from relax2xla.cli.arguments import proof as proof
from relax2xla.cli.arguments import setup as setup
from relax2xla.cli.arguments.root import app as app
