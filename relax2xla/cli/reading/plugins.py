"""``--plugin``: modules of the user that register something before a model is read."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.cli.process.signals import Interrupted
from relax2xla.errors import TVMError


def load_plugins(names: Sequence[str] | None) -> None:
    """Import each module or file; TVMError for one that is missing or fails."""
    if not names:
        return
    from relax2xla.importers.plugins import load_plugin

    for name in names:
        try:
            load_plugin(name)
        except (FileNotFoundError, ModuleNotFoundError) as e:
            raise TVMError(
                f"the plug-in {name} cannot be loaded: {e}. Give the path of a .py file, or the "
                "dotted name of a module that is installed"
            ) from e
        except Interrupted:
            raise
        except SystemExit as e:
            raise TVMError(f"the plug-in {name} ends the process: sys.exit({e.code!r})") from e
        except Exception as e:  # whatever code of the user raises
            raise TVMError(f"the plug-in {name} fails: {type(e).__name__}: {e}") from e
