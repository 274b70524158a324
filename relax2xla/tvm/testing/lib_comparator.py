"""``tvm.relax.testing.lib_comparator``: the operators of one machine held against another's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from relax2xla.testing import assert_allclose
from relax2xla.tvm.runtime.arrays import array, empty
from relax2xla.vm.pjrt import xla

log = logging.getLogger("relax2xla.tvm")


class LibCompareVMInstrument:
    """An instrument that runs each operator again by ``mod`` and compares the results.

    mod: what ``get_function(name, query_imports=True)`` gives operators of, such as
        ``vm.module.imported_modules[0]`` of another machine; those that it has not are left out.
    device: accepted; ``mod`` decides where its functions run. verbose: log what is compared.
    rtol, atol: how far results may be apart. AssertionError where they are further.
    """

    def __init__(
        self, mod: Any, device: Any, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        self.mod, self.device, self.verbose = mod, device, verbose
        self.rtol, self.atol = rtol, atol
        self.counter = 0

    def compare(
        self,
        name: str,
        ref_args: Sequence[Any],
        new_args: Sequence[Any],
        ret_indices: Iterable[int],
    ) -> None:
        """Run ``name`` on ``new_args``, where it writes to those at ``ret_indices``, and compare.

        ``ref_args``: the same with the results that are right. For classes that compare otherwise.
        """
        if self.verbose:
            log.info("[%d] Validating %s ...", self.counter, name)
        self.mod.get_function(name, query_imports=True)(*new_args)
        for i in ret_indices:
            want = np.asarray(ref_args[i])
            assert_allclose(np.asarray(new_args[i]), want, rtol=self.rtol, atol=self.atol)
        if self.verbose:
            log.info("[%d] Validating %s, passed.", self.counter, name)
        self.counter += 1

    def skip_instrument(
        self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any
    ) -> bool:
        """Whether a call is not to be compared; for classes that choose."""
        return False

    def __call__(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> None:
        """What the machine calls before and after each call."""
        if before_run or name.startswith("vm.builtin."):
            return
        results = jax.tree.leaves(ret_val)
        if not all(map(xla.is_array, (*args, *results))):
            return
        try:
            self.mod.get_function(name, query_imports=True)
        except AttributeError:
            if self.verbose:
                log.info("Cannot find %s, skip...", name)
            return
        if self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        given = [array(np.asarray(a)) for a in args]
        outputs = [empty(r.shape, str(r.dtype)) for r in results]
        places = range(len(given), len(given) + len(outputs))
        self.compare(name, [*args, *results], [*given, *outputs], places)
