"""What tests of this room share: programs as text, before and after a pass."""

from __future__ import annotations

import textwrap

from relax2xla.analysis import check_well_formed
from relax2xla.ir import IRModule, assert_structural_equal
from relax2xla.script import from_source
from relax2xla.transform import Pass, PassContext

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
CHECKED = PassContext(config={"relax2xla.check": True})


def module(functions: str) -> IRModule:
    """The module of some functions, written at any indentation."""
    mod = from_source(HEAD + textwrap.indent(textwrap.dedent(functions).strip("\n"), "    ") + "\n")
    assert isinstance(mod, IRModule)
    return mod


def becomes(
    given: Pass, before: str | IRModule, expected: str | IRModule, checked: bool = True
) -> IRModule:
    """Check what a pass makes of a module, and that it keeps its input.

    ``checked``: before and after it are well formed; False: after.
    """
    old = module(before) if isinstance(before, str) else before
    wanted = module(expected) if isinstance(expected, str) else expected
    text, functions = old.script(), dict(old.functions)
    with CHECKED if checked else PassContext():
        new = given(old)
    check_well_formed(new)
    assert_structural_equal(new, wanted)
    assert old.script() == text
    assert dict(old.functions) == functions
    return new


def stays(given: Pass, before: str | IRModule) -> None:
    """Check that a pass gives back the very module."""
    old = module(before) if isinstance(before, str) else before
    with CHECKED:
        assert given(old) is old
