"""What models are made of, under the names of ``tvm.relax.frontend.nn.core``."""

from __future__ import annotations

from relax2xla.frontend.nn.module import Module as Module
from relax2xla.frontend.nn.tree import Effect as Effect
from relax2xla.frontend.nn.values import IntExpr as IntExpr
from relax2xla.frontend.nn.values import Object as Object
from relax2xla.frontend.nn.values import Parameter as Parameter
from relax2xla.frontend.nn.values import Tensor as Tensor
from relax2xla.frontend.nn.values import get_default_dtype as get_default_dtype
from relax2xla.frontend.nn.values import set_default_dtype as set_default_dtype
from relax2xla.frontend.nn.values import wrap_nested as wrap_nested
