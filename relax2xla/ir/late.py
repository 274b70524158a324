"""Functions that nodes call and that are made of nodes, each given by the file above that has it.

Building a Call infers its struct info, ``a + b`` builds a Call, a node prints, copies and pickles
itself: methods that TVM's API has on the nodes, whose work needs all kinds of nodes. The names
stand here, below everything; ``@infer_call.given`` in ``lattice`` fills one. ``relax2xla.ir`` loads
all of these files, so that none is empty when a program runs.
"""

from __future__ import annotations

from relax2xla.late import Late

brief = Late()
"""``repr`` of an expression (``brief``)."""
infer_call = Late()
"""Struct info of a Call (``lattice``)."""
signature_info = Late()
"""Struct info of a function, of its parameters, its result's and its purity (``lattice``)."""
struct_info_lca = Late()
"""What describes the values of two struct infos (``lattice``)."""
is_base_of = Late()
"""Whether one struct info describes the values of another (``lattice``)."""
structural_equal = Late()
"""Whether two are equal up to the names of variables (``equal``)."""
operator = Late()
"""The operator of a name (``op``)."""
bind_symbolic_vars = Late()
"""A function with symbolic variables replaced (``bind``)."""
bind_params = Late()
"""A function with parameters replaced (``bind``)."""
replace_global_vars = Late()
"""A module with functions under other names (``rename``)."""
shallow_copy = Late()
"""``copy.copy`` of a node (``serial``)."""
deep_copy = Late()
"""``copy.deepcopy`` of a node (``serial``)."""
pickled = Late()
"""``__reduce__`` of a node (``serial``)."""
