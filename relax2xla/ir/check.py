"""Well-formedness: the rules that every pass may rely on.

- Every variable is defined once and before its use; what a branch or a local function binds stays
  inside; DataflowVars stay inside their block (local functions bound in it may capture them).
- A-normal form: operands are leaves or tuples of leaves, a sequence ends in such an operand. The
  regions of a StableHLO row are functions that stand among its operands.
- Dataflow blocks hold neither ``If`` nor impure calls; pure functions hold no impure call, unless
  the attribute ``relax.force_pure`` is set, which only functions that are declared pure have.
- Symbolic variables are defined by parameters and match-casts (a dimension by itself defines its
  variable) before they are used; the result of a function uses its parameters' only.
- GlobalVars are functions of the module; a public function has the name of its ``global_symbol``;
  two functions of a module share neither variables nor symbolic variables.
- Struct info is there, and what a variable declares does not contradict its value; tensors that are
  handed to loop-level functions, and those that they are to fill, can be what these take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NoReturn

from relax2xla import tir
from relax2xla.errors import OpError, TVMError, WellFormedError
from relax2xla.ir import expr as e
from relax2xla.ir import lattice
from relax2xla.ir.deep import nests
from relax2xla.ir.kernel_info import kernel_params
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import PROVIDERS, Op
from relax2xla.ir.rewrite import children
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)

log = logging.getLogger("relax2xla.ir")

ROWS = tuple(prefix for prefix, module in PROVIDERS if module.endswith(".rows"))
KERNEL_CALLS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad")
LEAVES = (
    e.Var,
    Op,  # early: what is asked most is found first
    e.Constant,
    e.ShapeExpr,
    e.PrimValue,
    e.GlobalVar,
    e.StringImm,
    e.DataTypeImm,
    e.ExternFunc,
)


def is_operand(node: e.Expr) -> bool:
    """Whether ``node`` may stand as an argument in A-normal form: a leaf, or a tuple of such."""
    if isinstance(node, LEAVES):
        return True
    stack = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, e.Tuple):
            stack.extend(at.fields)
        elif not isinstance(at, LEAVES):
            return False
    return True


def is_row_call(node: e.Expr) -> bool:
    """Whether ``node`` is a call of a row of a dialect, such as ``relax.stablehlo.reduce``."""
    return isinstance(node, e.Call) and isinstance(node.op, Op) and node.op.name.startswith(ROWS)


def is_impure_call(node: e.Expr) -> bool:
    """Whether ``node`` is a call with side effects, as far as operator or callee declare them."""
    if not isinstance(node, e.Call):
        return False
    if isinstance(node.op, Op):
        return not node.op.is_pure_call(node)
    info = node.op.struct_info_
    return isinstance(info, FuncStructInfo) and not info.purity


def well_formed(obj: IRModule | e.Function, check_struct_info: bool = True) -> bool:
    """Whether a module or function keeps the rules of this file; a warning tells which it breaks.

    The warning goes to the logger ``relax2xla.ir``, which shows it on stderr by default.
    """
    try:
        check_well_formed(obj, check_struct_info)
    except WellFormedError as e:
        log.warning("not well formed: %s", e)
        return False
    return True


def check_well_formed(
    obj: IRModule | e.Function, check_struct_info: bool = True, *, whole: bool = True
) -> None:
    """Raise ``WellFormedError`` with reason, function and binding if a rule is broken.

    ``check_struct_info`` False: nothing is asked of struct infos (they may be missing or wrong) but
    that their symbolic variables are defined.
    ``whole`` False: each function is looked at alone, and may call what is not in the module.
    """
    if isinstance(obj, e.Function):
        _Checker(None, check_struct_info).top(e.global_symbol(obj) or "the function", obj)
        return
    checker = _Checker(obj, check_struct_info)
    for gvar, func in obj.items():
        if not isinstance(func, e.Function):
            continue
        symbol = func.attrs.get("global_symbol")
        if whole and symbol is not None and symbol != gvar.name_hint:
            raise WellFormedError(
                f"the function {gvar.name_hint!r} has the global_symbol {symbol!r}; "
                "they must be the same (BlockBuilder.finalize renames)"
            )
        if not whole:
            checker = _Checker(None, check_struct_info)
        checker.top(gvar.name_hint, func)


def _open_symbols(info: StructInfo) -> list[tir.Var]:
    """Symbols of ``info`` that must be defined around it; a function's parameters define theirs."""
    found = lattice.free_symbolic_vars(info)
    if not found or not isinstance(info, FuncStructInfo):
        return found
    own = {v for p in info.params or () for v in lattice.definable_vars(p)}
    return [v for v in found if v not in own]


def _unplaced(info: StructInfo, known: StructInfo) -> StructInfo:
    """``info`` without the device on which it places a value that has none."""
    if not isinstance(info, TensorStructInfo) or not isinstance(known, TensorStructInfo):
        return info
    if info.vdevice is None or known.vdevice is not None:
        return info
    return TensorStructInfo(
        info.shape, info.dtype, ndim=-1 if info.shape is not None else info.ndim
    )


class _Checker:
    def __init__(self, mod: IRModule | None, check_info: bool) -> None:
        self.mod, self.check_info = mod, check_info
        self.function_name = ""
        self.binding_now: e.Binding | None = None
        self.owner: dict[e.Var, str] = {}
        self.symbol_owner: dict[tir.Var, str] = {}
        # What is visible now; the lists say in which order, to forget at the end of a scope.
        self.visible: set[e.Var] = set()
        self.symbols: set[tir.Var] = set()
        self.var_trail: list[e.Var] = []
        self.symbol_trail: list[tir.Var] = []
        self.pure = True
        self.dataflow = False
        self.kernels: dict[e.GlobalVar, list[StructInfo]] = {}
        self.symbols_of: dict[int, tuple[StructInfo, list[tir.Var], list[e.Expr]]] = {}

    def fail(self, reason: str) -> NoReturn:
        where = f"  in the function {self.function_name}"
        if self.binding_now is not None:
            where += f", binding `{self.binding_now!r}`"
        span = None if self.binding_now is None else self.binding_now.span
        raise WellFormedError(f"{reason}\n{where}", self.function_name, span)

    # -- definitions -------------------------------------------------------------------------
    def define(self, var: e.Var) -> None:
        if var in self.owner:
            self.fail(f"the variable {var.name_hint} is defined more than once")
        self.owner[var] = self.function_name
        self.visible.add(var)
        self.var_trail.append(var)

    def mark(self) -> tuple[int, int]:
        """The beginning of a scope, for ``forget``."""
        return len(self.var_trail), len(self.symbol_trail)

    def forget(self, mark: tuple[int, int]) -> None:
        """The end of a scope: what it defined is visible no more."""
        self.visible.difference_update(self.var_trail[mark[0] :])
        self.symbols.difference_update(self.symbol_trail[mark[1] :])
        del self.var_trail[mark[0] :], self.symbol_trail[mark[1] :]

    def define_symbols(self, infos: Iterable[StructInfo]) -> None:
        """Symbols that stand by themselves are defined; then all that occur must be."""
        infos = list(infos)
        for var in (v for info in infos for v in lattice.definable_vars(info)):
            owner = self.symbol_owner.setdefault(var, self.function_name)
            if owner != self.function_name:
                self.fail(
                    f"the symbolic variable {var} is defined in the functions {owner} and "
                    f"{self.function_name}; copy_with_new_vars gives one of them its own"
                )
            if var not in self.symbols:
                self.symbols.add(var)
                self.symbol_trail.append(var)
        for info in infos:
            self.check_symbols(info)

    def check_symbols(self, info: StructInfo | None) -> None:
        if info is None:
            return
        known = self.symbols_of.get(id(info))
        if known is None:
            known = (info, _open_symbols(info), lattice.held_shapes(info))
            self.symbols_of[id(info)] = known
        for var in known[1]:
            if var not in self.symbols:
                self.fail(f"the symbolic variable {var} in {show(info)} is not defined")
        for shape in known[2]:
            if isinstance(shape, e.Var) and shape not in self.visible:
                self.fail(f"in {show(info)}: {self.invisible(shape)}")

    def check_dims(self, dims: Iterable[tir.Dim]) -> None:
        for d in dims:
            for var in tir.free_vars(d):
                if var not in self.symbols:
                    self.fail(f"the symbolic variable {var} is not defined")

    # -- functions and sequences -------------------------------------------------------------
    def top(self, name: str, func: e.Function) -> None:
        self.function_name, self.binding_now = name, None
        self.function(func)

    @nests
    def function(self, func: e.Function) -> None:
        mark, outer = self.mark(), (self.pure, self.dataflow)
        for p in func.params:
            if isinstance(p, e.DataflowVar):
                self.fail(f"the parameter {p.name_hint} is a DataflowVar")
            if p.struct_info_ is None:
                self.fail(f"the parameter {p.name_hint} has no struct info")
            self.define(p)
        self.define_symbols(p.struct_info for p in func.params)
        self.check_symbols(func.ret_struct_info)
        if func.attrs.get("relax.force_pure") and not func.is_pure:
            self.fail(
                "the function has the attribute relax.force_pure, which is for functions that are "
                "declared pure, and is_pure=False; give it one of the two"
            )
        self.pure = func.is_pure and not func.attrs.get("relax.force_pure", False)
        self.dataflow = False
        self.seq(func.body)
        if self.check_info and func.body.struct_info_ is not None:
            try:
                lattice.unify(func.ret_struct_info, func.body.struct_info, {})
            except lattice.Mismatch as m:
                self.fail(f"the function declares {show(func.ret_struct_info)}; its result has {m}")
        self.forget(mark)
        self.pure, self.dataflow = outer

    @nests
    def seq(self, seq: e.SeqExpr) -> None:
        for block in seq.blocks:
            self.block(block)
        if not is_operand(seq.body):
            self.fail(f"a sequence must end in a variable or constant; got {seq.body!r}")
        self.operand(seq.body)

    def block(self, block: e.BindingBlock) -> None:
        before, self.dataflow = self.dataflow, isinstance(block, e.DataflowBlock)
        local: list[e.Var] = []
        for b in block.bindings:
            outer, self.binding_now = self.binding_now, b
            if isinstance(b.var, e.DataflowVar):
                if not self.dataflow:
                    self.fail(f"the DataflowVar {b.var.name_hint} is bound outside of dataflow")
                local.append(b.var)
            recursive = isinstance(b.value, e.Function)
            if recursive:  # a local function may call itself
                self.define(b.var)
            if isinstance(b, e.MatchCast):
                self.match_cast(b)
            else:
                self.value(b.value)
            if not recursive:
                self.define(b.var)
            self.declared(b.var, b.value if isinstance(b, e.VarBinding) else None)
            self.binding_now = outer
        self.visible.difference_update(local)
        self.dataflow = before

    def match_cast(self, b: e.MatchCast) -> None:
        if not is_operand(b.value):
            self.fail(f"match_cast takes a variable or constant; got {b.value!r}")
        self.operand(b.value)
        self.define_symbols([b.struct_info])
        if self.check_info and b.var.struct_info_ is not None:
            if not lattice.is_base_of(b.var.struct_info, b.struct_info):
                self.fail(
                    f"{b.var.name_hint} declares {show(b.var.struct_info)} but is cast to "
                    f"{show(b.struct_info)}"
                )

    def declared(self, var: e.Var, value: e.Expr | None) -> None:
        """What a variable declares describes its value."""
        info = var.struct_info_
        # Where a symbol comes from is asked in any case, as in TVM.
        self.check_symbols(info)
        if not self.check_info:
            return
        if info is None:
            self.fail(f"the variable {var.name_hint} has no struct info")
        if value is None:
            return
        known = value.struct_info_
        if known is None:
            self.fail(f"{value!r} has no struct info")
        if known is info or lattice.is_base_of(_unplaced(info, known), known):
            return
        # As in TVM, it may say more than is known of the value: a dtype, a shape.
        if not lattice.is_base_of(known, info):
            self.fail(f"{var.name_hint} declares {show(info)}; its value is {show(known)}")

    # -- values ------------------------------------------------------------------------------
    def value(self, node: e.Expr) -> None:
        """A bound value: one operation over operands."""
        match node:
            case e.Function():
                binding = self.binding_now
                self.function(node)
                self.binding_now = binding
            case e.SeqExpr():
                self.fail("a sequence cannot be bound; its bindings belong into the block")
            case e.If():
                self.branches(node)
            case _:
                kids = children(node)
                if is_row_call(node):
                    kids = self.regions(kids)
                if not isinstance(node, e.Tuple) and not all(map(is_operand, kids)):
                    self.fail(f"not in A-normal form: {node!r} has an operand that computes")
                if isinstance(node, e.Tuple) and not is_operand(node):
                    self.fail(f"not in A-normal form: the tuple {node!r} has a field that computes")
                self.operands(kids) if kids else self.operand(node)
                if isinstance(node, e.Call):
                    self.call(node)

    def regions(self, operands: Sequence[e.Expr]) -> Sequence[e.Expr]:
        """Check the regions among the operands of a row; gives the other operands."""
        binding = self.binding_now
        for operand in operands:
            if isinstance(operand, e.Function):
                self.function(operand)
                self.binding_now = binding
        return [o for o in operands if not isinstance(o, e.Function)]

    def branches(self, node: e.If) -> None:
        if self.dataflow:
            self.fail("If is not allowed in a dataflow block")
        if not is_operand(node.cond):
            self.fail(f"not in A-normal form: the condition {node.cond!r} computes")
        self.operand(node.cond)
        info = node.cond.struct_info_
        if isinstance(info, TensorStructInfo) and self.check_info:
            if info.dtype not in ("bool", "") or info.ndim not in (0, -1):
                self.fail(f"the condition of If must be a 0-d bool tensor; it is {show(info)}")
        binding = self.binding_now
        for branch in (node.true_branch, node.false_branch):
            mark = self.mark()
            self.seq(branch)
            self.forget(mark)
        self.binding_now = binding

    def call(self, call: e.Call) -> None:
        if is_impure_call(call):
            if self.dataflow:
                self.fail(f"the impure call {call!r} is in a dataflow block")
            if self.pure:
                self.fail(
                    f"the function is declared pure but holds the impure call {call!r}; "
                    "set is_pure=False, use call_pure_packed, or set relax.force_pure"
                )
        for info in call.sinfo_args:
            self.check_symbols(info)
        try:
            if isinstance(call.op, Op):
                if call.op.infer is not None:
                    call.op.bind(call)
                if call.op.name in KERNEL_CALLS and self.check_info:
                    self.kernel_call(call)
                if call.op.normal is not None and call.op.normal(None, call) is not call:
                    self.fail(f"{call!r} is not as the FNormalize of {call.op.name} wants it")
            elif self.check_info and isinstance(call.op.struct_info_, FuncStructInfo):
                args = [a.struct_info_ for a in call.args]
                known = [a for a in args if a is not None]
                if len(known) == len(args):
                    lattice.derive_call(call.op.struct_info_, known, repr(call.op))
        except (OpError, TVMError) as error:
            self.fail(str(error))

    def kernel_call(self, call: e.Call) -> None:
        """Operands and results of a ``call_tir`` against the parameters of what it calls."""
        callee = call.args[0]
        if self.mod is None or not isinstance(callee, e.GlobalVar):
            return
        func = self.mod.functions.get(callee)
        operands = call.args[1].struct_info_
        if not isinstance(func, tir.PrimFunc) or not isinstance(operands, TupleStructInfo):
            return
        if callee not in self.kernels:
            self.kernels[callee] = kernel_params(func)
        params = self.kernels[callee]
        out = call.sinfo_args[0]
        results = list(out.fields if isinstance(out, TupleStructInfo) else (out,))
        places = call.attrs.get("inplace_indices") or [-1] * len(results)
        given = list(operands.fields)
        given += [r for r, place in zip(results, places, strict=True) if place == -1]
        if any(isinstance(i, DTensorStructInfo) for i in given):
            return  # each device has a part
        scalars = call.args[2].struct_info_ if len(call.args) > 2 else None
        count = scalars.ndim if isinstance(scalars, ShapeStructInfo) else 0
        if count != -1 and len(params) != len(given) + count:
            self.fail(
                f"{call!r} hands over {len(given) + count} values; {callee!r} takes {len(params)}"
            )
        env: lattice.SymMap = {}
        for i, (param, info) in enumerate(zip(params, given, strict=False)):
            try:
                lattice.unify(param, info, env)
            except lattice.Mismatch as m:
                what = "argument" if i < len(operands.fields) else "result"
                at = i if what == "argument" else i - len(operands.fields)
                self.fail(f"{what} {at} of {call!r} has {m}, by what {callee!r} takes")

    def operands(self, nodes: Sequence[e.Expr]) -> None:
        for node in nodes:
            self.operand(node)

    def operand(self, root: e.Expr) -> None:
        """A leaf or a tuple of leaves: everything it names is visible."""
        stack = [root]
        while stack:
            node = stack.pop()
            match node:
                case e.Var():
                    if node not in self.visible:
                        self.fail(self.invisible(node))
                case e.Tuple():
                    stack.extend(node.fields)
                case e.ShapeExpr():
                    self.check_dims(node.values)
                case e.PrimValue():
                    self.check_dims((node.value,))
                case e.GlobalVar():
                    if self.mod is not None and node not in self.mod:
                        self.fail(f"the module has no function {node.name_hint!r} (by this object)")
                case _:
                    pass

    def invisible(self, var: e.Var) -> str:
        if isinstance(var, e.DataflowVar) and var in self.owner:
            return f"the DataflowVar {var.name_hint} is used outside of its dataflow block"
        if var in self.owner:
            return f"the variable {var.name_hint} is used outside of the scope that defines it"
        return f"the variable {var.name_hint} is not defined"
