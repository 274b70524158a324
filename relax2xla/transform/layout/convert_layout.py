"""ConvertLayout: convolutions, and what is around them, in the layouts that the user wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relax2xla.analysis.variables import used_vars
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    MatchCast,
    Op,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import is_base_of, result_info
from relax2xla.ir.rewrite import Rewriter, bindings_deep
from relax2xla.ir.traits import Convolution, Window
from relax2xla.op.shared.layouts import Layout
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.layout.forms import Form, Forms, initial_forms, moved
from relax2xla.transform.layout.layout_rules import Choice, Site, choose, complete

LayoutCallback = Callable[[Call], Mapping[str, Sequence[str]]]


@register()
class ConvertLayout(FunctionPass):
    """Convert convolutions and resizing, and what is around them, to other layouts.

    ``desired_layouts``: by the name of an operator the layouts of image, kernel and (default: as
    the image) result: {"relax.nn.conv2d": ["NHWC", "OHWI"]}; of ``relax.image.resize2d`` that of
    the image. They may be packed, ["NCHW4c", "OIHW4o"]: an operator whose sizes cannot be cut so
    keeps its layout. ``layout_cb``: a function that gives such a mapping for a call, in the place
    of ``desired_layouts``.

    Within dataflow blocks the operators in between follow where they can; results of a block, and
    what other operators read, lie as before. Operators that nobody names follow their operands.
    TransformError for operators and layouts that are none.
    """

    def __init__(
        self,
        desired_layouts: Mapping[str, Sequence[str]] | None,
        layout_cb: LayoutCallback | None = None,
    ) -> None:
        if layout_cb is None and not desired_layouts:
            raise TransformError(
                "ConvertLayout takes layouts by operator, or a function that gives them: "
                '{"relax.nn.conv2d": ["NHWC", "OHWI"]}'
            )
        self.layouts = _checked(desired_layouts or {})
        self.layout_cb = layout_cb

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        calls = (b.value for b in bindings_deep(func) if isinstance(b.value, Call))
        if not any(self.desired(c) is not None for c in calls):
            return func
        made = _Converter(self.desired).function(func)
        if made is func or made.body.struct_info_ is None:
            return made
        # What was converted is inferred anew, and may be known better than before.
        info = result_info(made.params, made.body.struct_info_)
        better = info != made.ret_struct_info and is_base_of(made.ret_struct_info, info)
        return made.replace(ret_struct_info=info) if better else made

    def desired(self, call: Call) -> Sequence[str] | None:
        """The layouts that the user wants of a call; None where nothing is said."""
        if not isinstance(call.op, Op) or not _has_layouts(call.op):
            return None
        if self.layout_cb is None:
            return self.layouts.get(call.op.name)
        return _checked(self.layout_cb(call)).get(call.op.name)


def _has_layouts(op: Op[...]) -> bool:
    return op.has(Convolution) or op.has(Window)


def _checked(layouts: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """``layouts`` where each is of an operator that has as many; TransformError else."""
    found: dict[str, tuple[str, ...]] = {}
    for name, texts in layouts.items():
        known = name in Op.list_op_names() and _has_layouts(Op.get(name))
        if not known:
            raise TransformError(
                f"ConvertLayout knows operators over images, such as relax.nn.conv2d; got {name!r}"
            )
        convolution = Op.get(name).has(Convolution)
        allowed = (2, 3) if convolution else (1, 2)
        if isinstance(texts, str) or len(texts) not in allowed:
            what = "image, kernel and maybe the result" if convolution else "image"
            raise TransformError(f"the layouts of {name} are a list, of {what}; got {texts!r}")
        for text in texts:
            Layout.of(text, f"layout of {name}")
        found[name] = tuple(texts)
    return found


class _Converter(Rewriter):
    """Rebuilds functions; ``forms`` has the forms of variables that lie in another one."""

    def __init__(self, desired: Callable[[Call], Sequence[str] | None]) -> None:
        super().__init__()
        self.desired = desired
        self.forms: dict[Var, Forms] = {}
        self.out: list[Binding] = []
        self.span: Span | None = None

    def block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return super().block(block)
        self.out = []
        for b in block.bindings:
            self.span = b.span or b.var.span
            self.one(b)
        same = len(self.out) == len(block.bindings) and all(
            a is b for a, b in zip(self.out, block.bindings, strict=True)
        )
        return block if same else DataflowBlock(self.out, block.span)

    # -- values in forms
    def form(self, value: Expr) -> Forms:
        """The forms in which ``value`` lies."""
        if isinstance(value, Var) and value in self.forms:
            return self.forms[value]
        if isinstance(value, Tuple):
            return tuple(map(self.form, value.fields))
        return initial_forms(value)

    def placed(self, value: Expr, want: Forms) -> Expr:
        """``value`` in the forms ``want``, as an operand."""
        have = self.form(value)
        if isinstance(value, Tuple) and isinstance(want, tuple):
            pairs = zip(value.fields, want, strict=True)
            return self.tuple_of(value, [self.placed(f, w) for f, w in pairs])
        plain = self.expr(value)
        made = self.moved(plain, have, want)
        return made if made is plain or isinstance(made, Tuple) else self.emit(made)

    def tuple_of(self, old: Tuple, fields: Sequence[Expr]) -> Tuple:
        """``old`` with other fields; itself where they are the same."""
        same = all(a is b for a, b in zip(old.fields, fields, strict=True))
        return old if same else Tuple(fields, old.span)

    def moved(self, value: Expr, have: Forms, want: Forms) -> Expr:
        """``value``, which is rebuilt already, from one form into another; not bound yet."""
        if have == want:
            return value
        if isinstance(have, tuple) and isinstance(want, tuple):
            fields: list[Expr] = []
            for i, (h, w) in enumerate(zip(have, want, strict=True)):
                item = self.emit(TupleGetItem(value, i))
                made = self.moved(item, h, w)
                fields.append(made if made is item else self.emit(made))
            return Tuple(fields)
        if isinstance(have, Form) and isinstance(want, Form):
            return moved(value, have, want)
        return value

    def emit(self, value: Expr) -> Var:
        """A new variable for ``value``."""
        var = DataflowVar("lv", value.struct_info, self.span)
        self.out.append(VarBinding(var, value, self.span))
        return var

    # -- bindings
    def one(self, b: Binding) -> None:
        """One binding of a dataflow block."""
        inner = isinstance(b.var, DataflowVar)
        value = b.value
        if isinstance(b, MatchCast):
            self.match_cast(b)
        elif isinstance(value, Call) and (choice := self.choice(value, inner)) is not None:
            self.bind(b, self.chosen(value, choice), choice.result)
        elif isinstance(value, Tuple) and inner:
            forms = self.form(value)
            self.bind(b, self.placed(value, forms), forms)
        elif isinstance(value, TupleGetItem) and inner:
            forms = self.form(value.tuple_value)
            known = forms[value.index] if isinstance(forms, tuple) else initial_forms(b.var)
            made = self.expr(value)
            self.bind(b, made, known)
        else:
            self.bind(b, self.as_given(value), initial_forms(b.var))

    def choice(self, call: Call, inner: bool) -> Choice | None:
        """What the rule of an operator says."""
        if not inner and _holds_others(call.struct_info_):
            return None
        return choose(Site(call, [self.form(a) for a in call.args], self.desired(call)))

    def chosen(self, call: Call, choice: Choice) -> Expr:
        """``call`` with its operands in the forms that were chosen."""
        pairs = zip(call.args, complete(choice, call), strict=True)
        args = [self.placed(a, want) for a, want in pairs]
        if all(a is b for a, b in zip(args, call.args, strict=True)) and all(
            f == initial_forms(a) for a, f in zip(call.args, choice.operands, strict=False)
        ):
            return call
        for i, value in choice.changed.items():
            args[i] = value
        return Call(call.op, args, {**call.attrs, **choice.attrs}, call.sinfo_args, call.span)

    def as_given(self, value: Expr) -> Expr:
        """A value whose operands lie as the program has them."""
        back: dict[Var, Expr] = {}
        for var in used_vars(value):
            if var in self.forms:
                back[var] = self.emit(
                    self.moved(self.expr(var), self.forms[var], initial_forms(var))
                )
        kept = {v: self.env.get(v, v) for v in back}
        self.env.update(back)
        try:
            return self.expr(value)
        finally:
            self.env.update(kept)

    def bind(self, b: Binding, value: Expr, forms: Forms) -> None:
        """``b`` with another value, which lies in ``forms``."""
        var = b.var
        if not isinstance(var, DataflowVar):
            if forms != initial_forms(var):
                held = self.emit(value)
                value = self.moved(held, forms, initial_forms(var))
            self.out.append(b if value is b.value else VarBinding(var, value, b.span))
            return
        info = value.struct_info_
        if info is not None and info != var.struct_info_:
            new = DataflowVar(var.name_hint, info, var.span)
            self.env[var] = new
        else:
            new = var
        if forms != initial_forms(var):
            self.forms[var] = forms
        same = new is var and value is b.value
        self.out.append(b if same else VarBinding(new, value, b.span))

    def match_cast(self, b: MatchCast) -> None:
        """A cast of a value that may lie in another form."""
        have = self.form(b.value)
        if not isinstance(b.var, DataflowVar) or have == initial_forms(b.value) or _packs(have):
            value = self.placed(b.value, initial_forms(b.value))
            self.out.append(
                b if value is b.value else MatchCast(b.var, value, b.struct_info, b.span)
            )
            return
        info = _in_form(b.struct_info, have)
        var = DataflowVar(b.var.name_hint, info, b.var.span)
        self.env[b.var], self.forms[b.var] = var, have
        self.out.append(MatchCast(var, self.placed(b.value, have), info, b.span))


def _holds_others(info: StructInfo | None) -> bool:
    """Whether a value is not made of tensors alone."""
    if isinstance(info, TupleStructInfo):
        return any(map(_holds_others, info.fields))
    return not isinstance(info, TensorStructInfo)


def _packs(forms: Forms) -> bool:
    if isinstance(forms, tuple):
        return any(map(_packs, forms))
    return forms is not None and forms.is_packed


def _in_form(info: StructInfo, forms: Forms) -> StructInfo:
    """Struct info of a value in forms that are not packed."""
    if isinstance(info, TupleStructInfo) and isinstance(forms, tuple):
        pairs = zip(info.fields, forms, strict=True)
        return TupleStructInfo([_in_form(i, f) for i, f in pairs])
    if not isinstance(info, TensorStructInfo) or not isinstance(forms, Form) or info.dims is None:
        return info
    dims = tuple(info.dims[p.axis] for p in forms.parts)
    return TensorStructInfo.make(dims, info.dtype, info.vdevice)
