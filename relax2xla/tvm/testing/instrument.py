"""``WellFormedInstrument``: the instrument that TVM's tests put around all passes."""

from __future__ import annotations

from typing import Final

from relax2xla.analysis import check_well_formed
from relax2xla.errors import WellFormedError
from relax2xla.ir import IRModule
from relax2xla.transform import PassInfo, PassInstrument
from relax2xla.transform.core.context import sees_whole_module

# These make modules well-formed, or bring them out of that state on purpose.
_FREE: Final = ("Normalize", "NormalizeGlobalVar", "ResolveGlobals")


class WellFormedInstrument(PassInstrument):
    """Checks modules after each pass, and before it unless ``validate_before_transform`` is False.

    AssertionError, as in TVM, where one is not; ``check_struct_info``: annotations, too.
    """

    def __init__(
        self, check_struct_info: bool = True, validate_before_transform: bool = True
    ) -> None:
        self.check_struct_info = check_struct_info
        self.validate_before_transform = validate_before_transform

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass is given."""
        if self.validate_before_transform:
            self._check(mod, info, "before")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass made."""
        self._check(mod, info, "after")

    def _check(self, mod: IRModule, info: PassInfo, when: str) -> None:
        if info.name in _FREE:
            return
        try:
            check_well_formed(mod, self.check_struct_info, whole=sees_whole_module())
        except WellFormedError as error:
            raise AssertionError(
                f"the module is not well-formed {when} the pass {info.name}: {error}\n"
                f"{mod.script()}"
            ) from error
