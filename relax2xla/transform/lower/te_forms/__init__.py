"""Operators as calls of loop-level functions: what each is in ``topi`` or ``te``, by family.

What ``LegalizeOps(to="kernels")`` makes of a call. Which function, which of its arguments, which
name: that of TVM Relax v0.20. An operator without a row here stays as it is, as in TVM.
"""

from relax2xla.transform.lower.te_forms import activations as activations
from relax2xla.transform.lower.te_forms import create as create
from relax2xla.transform.lower.te_forms import elementwise as elementwise
from relax2xla.transform.lower.te_forms import gradients as gradients
from relax2xla.transform.lower.te_forms import image as image
from relax2xla.transform.lower.te_forms import index as index
from relax2xla.transform.lower.te_forms import layout as layout
from relax2xla.transform.lower.te_forms import losses as losses
from relax2xla.transform.lower.te_forms import manipulate as manipulate
from relax2xla.transform.lower.te_forms import norms as norms
from relax2xla.transform.lower.te_forms import packed as packed
from relax2xla.transform.lower.te_forms import products as products
from relax2xla.transform.lower.te_forms import quantize as quantize
from relax2xla.transform.lower.te_forms import reductions as reductions
from relax2xla.transform.lower.te_forms import windows as windows
