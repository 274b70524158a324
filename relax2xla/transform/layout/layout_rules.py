"""Which forms of operands an operator can take, and what its call is then; for ConvertLayout.

A rule is found by the name of the operator or by one of its traits. It says in which forms the
operands shall lie, in which the result then lies, and the attributes (or operands) that change.
Where it has nothing to say, everything has the form of the program. Source: the layout inference of
TVM's operators, whose choices these are; what TVM would compute wrongly keeps its form instead
(packed axes that are reduced, normalised or joined where the parts do not fit).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from relax2xla import tir
from relax2xla.ir import (
    Call,
    Expr,
    Op,
    PrimValue,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.ir.op import call_attrs, trait_of
from relax2xla.ir.traits import (
    AlongAxis,
    Broadcasting,
    Convolution,
    Joins,
    Normalises,
    Permutes,
    Pointwise,
    Reduction,
    Trait,
    Window,
    axes_of,
)
from relax2xla.transform.layout.forms import (
    Form,
    Forms,
    Part,
    initial,
    initial_forms,
    named,
    same_axes,
)
from relax2xla.transform.layout.propagation import dims_of


@dataclass(frozen=True, slots=True)
class Site:
    """A call that may get another form: the forms of its operands, and the layouts desired."""

    call: Call
    forms: Sequence[Forms]
    desired: Sequence[str] | None

    def form(self, i: int = 0) -> Form | None:
        """The form of a tensor operand."""
        found = self.forms[i] if i < len(self.forms) else None
        return found if isinstance(found, Form) else None

    def plain_form(self, i: int = 0) -> Form | None:
        """As :meth:`form`, that of the program if it is packed."""
        found = self.form(i)
        return initial(found.rank) if found is not None and found.is_packed else found

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the call, with defaults."""
        return call_attrs(self.call)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a rule says: forms of operands (those left out: of the program) and of the result."""

    operands: Sequence[Forms]
    result: Forms
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changed: Mapping[int, Expr] = field(default_factory=dict[int, Expr])


Rule: TypeAlias = Callable[[Site], Choice | None]


# -- windows over images
def _convolution(site: Site) -> Choice | None:
    trait = trait_of(site.call, Convolution)
    names = (trait.layout, "kernel_layout", trait.out)
    have = [str(site.attrs[n] or site.attrs[trait.layout]) for n in names]
    if site.desired is not None:
        desired = list(site.desired)
        want = [*desired[:2], desired[2] if len(desired) > 2 else desired[0]]
        if not same_axes(have, want):
            return None
        forms = [named(w, h) for w, h in zip(want, have, strict=True)]
        values = (*site.call.args[:2], site.call)
        if all(f.fits(dims_of(v)) for f, v in zip(forms, values, strict=True)):
            return Choice(forms[:2], forms[2], dict(zip(names, want, strict=True)))
    image, kernel = site.plain_form(0), site.plain_form(1)
    if image is None or kernel is None:
        return None
    texts = (image.text(have[0]), kernel.text(have[1]), image.text(have[2]))
    return Choice([image, kernel], image, dict(zip(names, texts, strict=True)))


def _window(site: Site) -> Choice | None:
    trait = trait_of(site.call, Window)
    names = [n for n in (trait.layout, trait.out) if n]
    have = [str(site.attrs[n] or site.attrs[trait.layout]) for n in names]
    # Resizing is computed in the plain layout, so a packed one is for those who ask for it.
    form = site.form() if trait.out else site.plain_form()
    if site.desired is not None:
        form = named(site.desired[0], have[0]) if same_axes(have[:1], site.desired[:1]) else None
    if form is None or not isinstance(site.call.struct_info_, TensorStructInfo):
        return None
    if not (form.fits(dims_of(site.call.args[0])) and form.fits(dims_of(site.call))):
        form = initial(form.rank)
    texts = (form.text(layout) for layout in have)
    return Choice([form], form, dict(zip(names, texts, strict=True)))


# -- element by element
def _elementwise(site: Site) -> Choice | None:
    tensors = [i for i, v in enumerate(site.call.args) if _is_tensor(v)]
    others = [v for v in site.call.args if not _is_tensor(v) and not isinstance(v, PrimValue)]
    if others or not tensors or not _is_tensor(site.call):
        return None
    if len(tensors) == 1:
        forms: list[Forms] = [site.form(i) for i in range(len(site.call.args))]
        return Choice(forms, site.form(tensors[0]))
    return _pair(site) if len(site.call.args) == 2 else _several(site, tensors)


def _pair(site: Site) -> Choice | None:
    a, b = site.form(0), site.form(1)
    if a is None or b is None:
        return None
    x, y = (dims_of(v) for v in site.call.args)
    if a.rank == b.rank:
        # Where the shape of the second is not known, the first has to follow it.
        first = len(a.parts) >= len(b.parts) and y is not None
        chosen, dims = (a, y) if first or x is None else (b, x)
        if not chosen.fits(dims):
            chosen = initial(a.rank)
        return Choice([chosen, chosen], chosen)
    if a.rank == 0 or b.rank == 0:
        form = b if a.rank == 0 else a
        return Choice([a if a.rank == 0 else form, b if b.rank == 0 else form], form)
    short, rank = (a, b.rank) if a.rank < b.rank else (b, a.rank)
    if short.is_packed:
        short = initial(short.rank)
    more = rank - short.rank
    whole = Form((*initial(more).parts, *(Part(p.axis + more) for p in short.parts)))
    return Choice([short, whole] if a.rank < b.rank else [whole, short], whole)


def _several(site: Site, tensors: Sequence[int]) -> Choice | None:
    """More operands: the form of the first, or the one that all others share."""
    forms = [site.form(i) for i in tensors]
    first, *others = forms
    chosen = others[0] if all(f == others[0] for f in others) else first
    dims = [dims_of(site.call.args[i]) for i in tensors]
    if chosen is None or any(f is None or f.rank != chosen.rank for f in forms):
        return None
    if not all(map(chosen.fits, dims)):
        chosen = initial(chosen.rank)
    return Choice([chosen if i in tensors else None for i in range(len(site.call.args))], chosen)


def _is_tensor(value: Expr) -> bool:
    return isinstance(value.struct_info_, TensorStructInfo)


# -- along axes
def _reduction(site: Site) -> Choice | None:
    trait, form = trait_of(site.call, Reduction), site.form()
    given = site.attrs[trait.axis]
    if form is None or (given is None and trait.places):
        return None
    axes = axes_of(given, form.rank)
    keeps = bool(site.attrs[trait.keepdims])
    if keeps and form.packed_axes & {*axes}:
        form = initial(form.rank)
    places = [i for i, p in enumerate(form.parts) if p.axis in axes]
    if trait.places and len(places) > 1:
        # Of the places of elements there is one number, which says an axis.
        form = initial(form.rank)
        places = list(axes)
    left = [a for a in range(form.rank) if a not in axes]
    kept = (Part(left.index(p.axis), p.inner) for p in form.parts if p.axis not in axes)
    axis = places[0] if isinstance(given, int) and len(places) == 1 else places
    return Choice([form], form if keeps else Form(tuple(kept)), {trait.axis: axis})


def _along(site: Site) -> Choice | None:
    name, form = trait_of(site.call, AlongAxis).axis, site.plain_form()
    given = site.attrs[name]
    if form is None or given is None or not _is_tensor(site.call):
        return None
    places = [form.place(a) for a in axes_of(given, form.rank)]
    return Choice([form], form, {name: places[0] if isinstance(given, int) else places})


def _normalisation(site: Site) -> Choice | None:
    name, form = trait_of(site.call, Normalises).axes, site.form()
    if form is None:
        return None
    axes = axes_of(site.attrs[name], form.rank)
    places = [form.place(a) for a in axes]
    if form.packed_axes & {*axes} or places != sorted(places):
        form, places = initial(form.rank), list(axes)
    return Choice([form], form, {name: places})


def _batch_norm(site: Site) -> Choice | None:
    form, info = site.plain_form(), site.call.struct_info_
    if form is None or not isinstance(info, TupleStructInfo):
        return None
    result = (form, *(initial(1) for _ in info.fields[1:]))
    return Choice([form], result, {"axis": form.place(site.attrs["axis"])})


def _group_norm(site: Site) -> Choice | None:
    form, attrs = site.plain_form(), site.attrs
    if form is None:
        return None
    axes = [form.place(a) for a in axes_of(attrs["axes"], form.rank)]
    return Choice([form], form, {"axes": axes, "channel_axis": form.place(attrs["channel_axis"])})


def _concat(site: Site) -> Choice | None:
    forms, name = site.forms[0], trait_of(site.call, Joins).axis
    parts = site.call.args[0].struct_info_
    if not isinstance(forms, tuple) or not forms or not isinstance(parts, TupleStructInfo):
        return None
    first = forms[0]
    if not isinstance(first, Form) or not all(isinstance(f, Form) for f in forms):
        return None
    dims = [f.dims if isinstance(f, TensorStructInfo) else None for f in parts.fields]
    form = first if all(map(first.fits, dims)) else initial(first.rank)
    axis = form.place(site.attrs[name] or 0)
    return Choice([(form,) * len(forms)], form, {name: axis})


def _split(site: Site) -> Choice | None:
    form, info = site.form(), site.call.struct_info_
    if form is None or not isinstance(info, TupleStructInfo):
        return None
    at = site.attrs["axis"] % form.rank
    dims = [f.dims if isinstance(f, TensorStructInfo) else None for f in info.fields]
    sections = site.attrs["indices_or_sections"]
    if at in form.packed_axes and not isinstance(sections, int):
        # Places on the packed axis would be numbers of its blocks.
        form = initial(form.rank)
    if not all(map(form.fits, dims)):
        form = initial(form.rank)
    return Choice([form], (form,) * len(info.fields), {"axis": form.place(at)})


def _strided_slice(site: Site) -> Choice | None:
    form, axes = site.plain_form(), site.call.args[1]
    if form is None or not isinstance(axes, Tuple):
        return None
    given = [f.value if isinstance(f, PrimValue) else None for f in axes.fields]
    numbers = [v.value for v in given if isinstance(v, tir.IntImm)]
    if len(numbers) < len(given):
        return None
    places = Tuple([PrimValue(form.place(n)) for n in numbers])
    return Choice([form], form, {}, {1: places})


# -- other axes
def _permute_dims(site: Site) -> Choice | None:
    name, form = trait_of(site.call, Permutes).axes, site.plain_form()
    if form is None:
        return None
    given = site.attrs[name]
    axes = reversed(range(form.rank)) if given is None else axes_of(given, form.rank)
    return Choice([form], initial(form.rank), {name: [form.place(a) for a in axes]})


def _expand_dims(site: Site) -> Choice | None:
    form = site.plain_form()
    if form is None:
        return None
    given: Sequence[int] = site.attrs["axis"]
    rank = form.rank + len(given)
    new = {a % rank for a in given}
    old = [i for i in range(rank) if i not in new]
    rest = iter(Part(old[p.axis]) for p in form.parts)
    parts = (Part(i) if i in new else next(rest) for i in range(rank))
    return Choice([form], Form(tuple(parts)))


def _squeeze(site: Site) -> Choice | None:
    form, dims = site.plain_form(), dims_of(site.call.args[0])
    given = site.attrs["axis"]
    if form is None or (given is None and dims is None):
        return None
    ones = [i for i, d in enumerate(dims or ()) if isinstance(d, int) and d == 1]
    gone = ones if given is None else list(axes_of(given, form.rank))
    left = [a for a in range(form.rank) if a not in gone]
    kept = tuple(Part(left.index(p.axis)) for p in form.parts if p.axis not in gone)
    places = [i for i, p in enumerate(form.parts) if p.axis in gone]
    return Choice([form], Form(kept), {"axis": places})


RULES: Final[Mapping[str | type[Trait], Rule]] = {
    Convolution: _convolution,
    Window: _window,
    Pointwise: _elementwise,
    Broadcasting: _elementwise,
    Reduction: _reduction,
    "relax.split": _split,
    Joins: _concat,
    AlongAxis: _along,
    Normalises: _normalisation,
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.strided_slice": _strided_slice,
    Permutes: _permute_dims,
    "relax.expand_dims": _expand_dims,
    "relax.squeeze": _squeeze,
}


def choose(site: Site) -> Choice | None:
    """What the rule of the operator says; None without one, and where ranks are unknown."""
    op = site.call.op
    if not isinstance(op, Op) or "discardable" in site.call.attrs:
        return None
    if any(_unknown(v, f) for v, f in zip(site.call.args, site.forms, strict=True)):
        return None
    of_traits = (RULES[type(t)] for t in op.traits if type(t) in RULES)
    rule = RULES.get(op.name) or next(of_traits, None)
    return rule(site) if rule is not None else None


def _unknown(value: Expr, forms: Forms) -> bool:
    """Whether ``value`` is, or holds, a tensor without a form."""
    if isinstance(forms, tuple):
        info = value.struct_info_
        fields = info.fields if isinstance(info, TupleStructInfo) else ()
        pairs = zip(fields, forms, strict=True)
        return any(isinstance(i, TensorStructInfo) and f is None for i, f in pairs)
    return forms is None and _is_tensor(value)


def complete(choice: Choice, call: Call) -> list[Forms]:
    """The forms of all operands: those that the choice leaves out are as the program has them."""
    given = list(choice.operands)
    return given + [initial_forms(a) for a in call.args[len(given) :]]
