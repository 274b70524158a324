"""The functions of ``T`` that say something of what is open: blocks, axes, loops, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla.script.prim_func.forms import axes, blocks, loops, memory, statements
from relax2xla.script.prim_func.forms.axes import Axes as Axes
from relax2xla.script.prim_func.forms.memory import check_parameter as check_parameter
from relax2xla.script.prim_func.forms.owner import FunctionHead as FunctionHead
from relax2xla.script.prim_func.forms.statements import MetaVar as MetaVar
from relax2xla.script.prim_func.forms.statements import let as let
from relax2xla.script.prim_func.forms.statements import store as store

FORMS: Final[dict[str, Callable[..., Any]]] = {
    **blocks.FORMS,
    **axes.FORMS,
    **loops.FORMS,
    **memory.FORMS,
    **statements.FORMS,
}
