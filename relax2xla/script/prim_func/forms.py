"""The functions of ``T`` that say something of what is open: blocks, loops, buffers, axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeGuard

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.script import arithmetic as arith
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.buffers import make
from relax2xla.script.prim_func.frames import (
    BlockOpener,
    Branch,
    Frame,
    InitOpener,
    Loop,
    Opener,
    block_of,
    flat,
    widest,
)
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, PointerVar
from relax2xla.tir.kernel.complete import with_regions, with_root
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.node import element_of, is_int, lanes_of
from relax2xla.tir.vector import with_lanes


class Owner(Protocol):
    """What the forms need of the parser."""

    frames: list[Frame]
    func: FunctionHead
    line: int

    def symbol_named(self, name: str) -> tir.Dim:
        """The symbolic variable that a string names."""
        ...


class FunctionHead:
    """What is known of the function so far."""

    def __init__(self) -> None:
        self.params: list[tir.Var] = []
        self.buffer_map: dict[tir.Var, Buffer] = {}
        self.attrs: dict[str, Any] = {}
        self.allocated: list[Buffer] = []
        self.threads: dict[tir.Var, s.IterVar] = {}
        # Which blocks, by their ids, lack "reads" or "writes"; the blocks are kept alive with it.
        self.missing: dict[int, tuple[str, ...]] = {}
        self.kept: list[s.Block] = []

    def block(self, opened: BlockOpener, body: s.Stmt, line: int) -> s.BlockRealize:
        """A block that ends; what it does not say of its accesses is found out at the end."""
        made, lacks = block_of(opened, body, line)
        if lacks:
            self.missing[id(made.block)] = lacks
            self.kept.append(made.block)
        return made

    def opaque(self) -> Iterator[tuple[str, int]]:
        """Blocks that use a pointer of a buffer and do not say their accesses, with the line."""
        pointers = {b.data: b for b in (*self.buffer_map.values(), *self.allocated)}
        for block in self.kept:
            pointers.update((b.data, b) for b in block.alloc_buffers)
        for block in self.kept:
            stack = [block.body] if block.init is None else [block.init, block.body]
            while stack:
                node = stack.pop()
                if isinstance(node, s.BlockRealize):
                    continue
                stack += s.children(node)
                used = (x for e in expressions(node) for x in _pointers(e))
                found = next((pointers[x] for x in used if x in pointers), None)
                if found is not None:
                    yield (
                        f"the block {block.name_hint!r} hands on {found.name}.data, so what it "
                        "reads and writes cannot be told; say it with T.reads and T.writes",
                        block.line,
                    )
                    break

    def finished(self, body: s.Stmt, ret: str | None, attrs: dict[str, Any]) -> tir.PrimFunc:
        """The function of a body: with its root block, and what its blocks read and write."""
        memory = {b.data: b for b in (*self.buffer_map.values(), *self.allocated)}
        whole = with_regions(with_root(body, self.allocated), memory, self.missing)
        return tir.PrimFunc(self.params, whole, ret, self.buffer_map, attrs)


def _pointers(root: tir.PrimExpr) -> Iterator[tir.Var]:
    """The handles in an expression, but for those of T.tvm_access_ptr, which says the access."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Var) and node.dtype == "handle":
            yield node
        if not (isinstance(node, tir.Call) and node.op == "tir.tvm_access_ptr"):
            stack += node.children()


class MetaVar:
    """``T.meta_var(value)``: a value that only the parser has; the program does not show it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __iter__(self) -> Iterator[MetaVar]:
        held: Any = self.value
        return (MetaVar(x) for x in held)


# -- blocks --------------------------------------------------------------------------------------
def _block(owner: Owner, name: str = "", no_realize: bool = False) -> BlockOpener:
    if not isinstance(no_realize, bool):
        raise TypeError(f"no_realize= of T.block is a bool; got {no_realize!r}")
    return BlockOpener(v.text(name, "the name of a block"), realized=not no_realize)


def _innermost(owner: Owner, what: str) -> BlockOpener:
    """The innermost open block, which must be what is open last, but for flat statements."""
    for frame in reversed(owner.frames):
        if frame.block is not None:
            return frame.block
    raise ValueError(f"{what} stands in a block: `with T.block(...):`")


def _reads(owner: Owner, *regions: object) -> None:
    block = _innermost(owner, "T.reads")
    if block.reads is not None:
        raise ValueError(f"the block {block.name!r} says twice what it reads")
    block.reads = tuple(v.region_of(r) for r in flat(regions) if not isinstance(r, v.ValueRead))


def _writes(owner: Owner, *regions: object) -> None:
    block = _innermost(owner, "T.writes")
    if block.writes is not None:
        raise ValueError(f"the block {block.name!r} says twice what it writes")
    block.writes = tuple(v.region_of(r) for r in flat(regions))


def _where(owner: Owner, predicate: object) -> None:
    block = _innermost(owner, "T.where")
    if block.predicate is not None:
        raise ValueError(f"the block {block.name!r} has two predicates")
    if isinstance(predicate, int):
        predicate = bool(predicate)
    made = v.number(predicate)
    if made.dtype != "bool":
        raise TypeError(f"a predicate is a bool; got `{made}` of dtype {made.dtype}")
    block.predicate = made


def _block_attr(owner: Owner, attrs: dict[str, Any]) -> None:
    block = _innermost(owner, "T.block_attr")
    if block.annotations is not None:
        raise ValueError(f"the block {block.name!r} has its attributes twice")
    block.annotations = v.mapping(attrs, "T.block_attr")


def _init(owner: Owner) -> InitOpener:
    if _innermost(owner, "T.init").init is not None:
        raise ValueError("a block has one T.init")
    return InitOpener()


# -- axes ----------------------------------------------------------------------------------------
class Axes:
    """``T.axis``"""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def _push(self, dom: tir.Range, dtype: str, kind: s.IterType, binding: object) -> tir.Var:
        frame = self.owner.frames[-1]
        if frame.block is None or frame.entries:
            raise ValueError("T.axis stands in a block, before its statements")
        value = v.number(binding)
        if not tir.is_int(value.dtype):
            raise TypeError(f"an axis is bound to an integer; got `{value}` of dtype {value.dtype}")
        var = tir.Var("", dtype)
        frame.block.iter_vars.append(s.IterVar(dom, var, kind))
        frame.block.iter_values.append(value)
        return var

    def _axis(self, kind: s.IterType, dom: object, binding: object, dtype: str) -> tir.Var:
        span = as_range(dom)
        dtype = v.dtype_name(dtype)
        if not is_int(dtype):
            raise TypeError(f"an axis is an integer; got the dtype {dtype}")
        wide = widest(tir.const(0, dtype), span.min, span.extent)
        return self._push(span, wide, kind, binding)

    def spatial(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis whose values do not depend on each other."""
        return self._axis("spatial", dom, binding, dtype)

    def reduce(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis that is reduced over."""
        return self._axis("reduce", dom, binding, dtype)

    def scan(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis that is run through in order."""
        return self._axis("scan", dom, binding, dtype)

    def opaque(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis of which nothing is known."""
        return self._axis("opaque", dom, binding, dtype)

    S = spatial
    R = reduce

    def remap(self, kinds: str, bindings: Sequence[object], dtype: str = "int32") -> Any:
        """One axis for each loop variable, over the loop's range."""
        kinds = v.text(kinds, "the first argument of T.axis.remap")
        if not isinstance(bindings, list | tuple) or not bindings:
            raise TypeError(
                "T.axis.remap takes a list of one loop variable or more; got "
                f"{arith.described(bindings)}"
            )
        if len(kinds) != len(bindings):
            raise ValueError(f"{len(kinds)} kinds of axes for {len(bindings)} loop variables")
        made: list[tir.Var] = []
        for kind, binding in zip(kinds, bindings, strict=True):
            if kind not in "SR":
                raise ValueError(f'the kinds of axes are "S" and "R"; got {kind!r}')
            dom = self._loop_range(binding)
            assert isinstance(binding, tir.Var)
            what: s.IterType = "spatial" if kind == "S" else "reduce"
            made.append(self._push(dom, binding.dtype, what, binding))
        return made[0] if len(made) == 1 else made

    def _loop_range(self, binding: object) -> tir.Range:
        for frame in self.owner.frames:
            if frame.loop is not None:
                for var, dom in zip(frame.loop.vars, frame.loop.ranges, strict=True):
                    if var is binding:
                        return dom
        raise TypeError(f"T.axis.remap takes variables of loops; got `{binding}`")


def as_range(dom: object) -> tir.Range:
    """The range of an axis: a size, or where it starts and ends."""
    if isinstance(dom, tir.Range):
        return dom
    if isinstance(dom, list | tuple):
        ends: Sequence[object] = dom
        if len(ends) != 2:
            raise ValueError(f"a range is a size, or where it starts and ends; got {len(ends)}")
        begin, end = map(v.number, ends)
        for bound in (begin, end):
            if not is_int(bound.dtype):
                raise TypeError(f"an axis runs over integers; got `{bound}` of {bound.dtype}")
        begin, end = tir.match_dtypes(begin, end)
        return tir.Range.from_min_extent(tir.as_dim(begin), v.simplified(end - begin))
    extent = v.number(dom)
    if not is_int(extent.dtype):
        raise TypeError(f"an axis runs over integers; got `{extent}` of dtype {extent.dtype}")
    return tir.Range.from_min_extent(tir.as_dim(tir.const(0, extent.dtype)), tir.as_dim(extent))


# -- loops ---------------------------------------------------------------------------------------
def _loop(kind: s.LoopKind) -> Callable[..., Loop]:
    def make_loop(
        owner: Owner,
        start: object,
        stop: object = None,
        step: object = None,
        *,
        annotations: dict[str, Any] | None = None,
    ) -> Loop:
        if step is not None and not (isinstance(step, int) and step == 1):
            raise v.Unread(None, "a loop with a step is not read")
        return _made(kind, start, stop, annotations)

    return make_loop


def _made(
    kind: s.LoopKind,
    start: object,
    stop: object,
    annotations: dict[str, Any] | None,
    thread: str = "",
) -> Loop:
    last = v.number(start if stop is None else stop)
    _check_bound(last)
    first = tir.const(0, last.dtype) if stop is None else v.number(start)
    _check_bound(first)
    extent = v.simplified(last - first)
    low = tir.as_dim(first)
    dtype = widest(low, extent)
    dom = tir.Range.from_min_extent(low, extent)
    held = v.mapping(annotations, "annotations= of a loop")
    return Loop([tir.Var("", dtype)], [dom], kind, held, thread)


def _check_bound(bound: tir.PrimExpr) -> None:
    if not is_int(bound.dtype):
        raise TypeError(f"a loop runs over integers; got `{bound}` of dtype {bound.dtype}")


def _check_threads(extent: tir.Dim, thread: str) -> None:
    """ValueError for a number of threads that is known and below zero."""
    if isinstance(extent, int | tir.IntImm) and int(extent) < 0:
        raise ValueError(f"{int(extent)} threads of {thread}; there are none or more")


def _thread_binding(
    owner: Owner,
    start: object,
    stop: object = None,
    thread: str | None = None,
    *,
    annotations: dict[str, Any] | None = None,
) -> Loop:
    if thread is None:
        if not isinstance(stop, str):
            raise ValueError('T.thread_binding needs a thread, such as "threadIdx.x"')
        stop, thread = None, stop
    made = _made("thread_binding", start, stop, annotations, v.text(thread, "thread="))
    _check_threads(made.ranges[0].extent, made.thread)
    return made


def _grid(owner: Owner, *extents: object) -> Loop:
    if not extents:
        raise ValueError("T.grid takes one extent or more")
    sizes = [v.number(e) for e in extents]
    for size in sizes:
        _check_bound(size)
    ranges = [
        tir.Range.from_min_extent(tir.as_dim(tir.const(0, e.dtype)), tir.as_dim(e)) for e in sizes
    ]
    return Loop([tir.Var("", e.dtype) for e in sizes], ranges, "serial", {})


# -- buffers -------------------------------------------------------------------------------------
def _buffer(owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    made = partial(make, owner.symbol_named)
    v.bind("a buffer", made, args, kwargs)
    return replace(made(*args, **kwargs), line=owner.line)


def _match_buffer(
    owner: Owner,
    param: object,
    shape: object = None,
    dtype: object = "float32",
    *args: Any,
    **kwargs: Any,
) -> Buffer:
    if isinstance(param, BufferLoad):
        param = v.region_of(param)
    if shape is None:
        if not isinstance(param, BufferRegion):
            raise ValueError("T.match_buffer needs a shape")
        shape = tuple(v.number64(r.extent) for r in param.region)
        dtype = param.buffer.dtype
    buffer = _buffer(owner, shape, dtype, *args, **kwargs)
    if isinstance(param, BufferRegion):
        block = _innermost(owner, "T.match_buffer of a region")
        _check_match(buffer, param)
        block.match_buffers.append(s.MatchBufferRegion(buffer, param))
    elif isinstance(param, tir.Var) and any(param is p for p in owner.func.params):
        if param in owner.func.buffer_map:
            raise ValueError(f"the parameter {param.name} is a buffer already; match it once")
        if param.dtype != "handle":
            raise TypeError(
                f"the parameter {param.name} is {param.dtype}; T.match_buffer takes a T.handle"
            )
        check_parameter(buffer)
        owner.func.buffer_map[param] = buffer
    else:
        raise ValueError("T.match_buffer takes a parameter of the function, or a region")
    return buffer


def check_parameter(buffer: Buffer) -> None:
    """ValueError where a parameter has a size that no array has."""
    below = [int(d) for d in buffer.shape if _number(d) and int(d) < 0]
    if below:
        raise ValueError(f"the buffer has the shape {_shown(buffer.shape)}; no size is negative")


def _check_match(buffer: Buffer, source: BufferRegion) -> None:
    """ValueError where a region cannot have the shape of the buffer that views it."""
    if buffer.dtype != source.buffer.dtype:
        raise TypeError(
            f"T.match_buffer: {source.buffer.name} holds {source.buffer.dtype}, the buffer that "
            f"views its region {buffer.dtype}; both have one dtype"
        )
    extents = [tir.simplify(r.extent) for r in source.region]
    ahead = len(extents) - buffer.ndim
    wanted = [*([1] * ahead), *map(tir.simplify, buffer.shape)]
    known = [(a, b) for a, b in zip(extents, wanted, strict=False) if _number(a) and _number(b)]
    if ahead < 0 or any(int(a) != int(b) for a, b in known):
        raise ValueError(
            f"T.match_buffer: the region of {source.buffer.name} has the extents "
            f"{_shown(extents)}, the buffer that views it the shape {_shown(buffer.shape)}; the "
            "last extents are its sizes, and those before are 1"
        )


def _number(value: tir.Dim) -> TypeGuard[int | tir.IntImm]:
    return isinstance(value, int | tir.IntImm)


def _shown(sizes: Sequence[tir.Dim]) -> str:
    return f"({', '.join(str(int(d) if _number(d) else d) for d in sizes)})"


def _alloc_buffer(owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    buffer = _buffer(owner, *args, **kwargs)
    for frame in reversed(owner.frames):
        if frame.block is not None:
            frame.block.alloc_buffers.append(buffer)
            return buffer
    owner.func.allocated.append(buffer)
    return buffer


def _alloc_in(scope: str, owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    return _alloc_buffer(owner, *args, **{"scope": scope, **kwargs})


def _decl_buffer(owner: Owner, *args: Any, **kwargs: Any) -> Opener:
    buffer = _buffer(owner, *args, **kwargs)
    given = kwargs.get("data", args[2] if len(args) > 2 else None) is not None
    line = owner.line

    def wrap(body: s.Stmt) -> s.Stmt:
        made = s.DeclBuffer(buffer, body, line=line)
        if given:
            return made
        sizes = tuple(map(v.number64, buffer.shape))
        return s.Allocate(buffer.data, buffer.dtype, sizes, s.TRUE, made, buffer.scope, line=line)

    return Opener(wrap, buffer)


def _allocate(
    owner: Owner,
    extents: Sequence[object],
    dtype: object,
    scope: str = "global",
    condition: object = True,
    annotations: dict[str, Any] | None = None,
) -> Opener:
    name, where = v.dtype_name(dtype), v.text(scope, "the scope of T.allocate")
    var = PointerVar("", name, where)
    sizes = tuple(v.number(v.dim(e)) for e in _several(extents, "the extents of T.allocate"))
    held, line = v.number(condition), owner.line
    more = v.mapping(annotations, "annotations= of T.allocate")
    return Opener(
        lambda body: s.Allocate(var, name, sizes, held, body, where, more, line=line), var
    )


def _several(values: Any, what: str) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"{what} are a list; got {arith.described(values)}")
    held: Sequence[Any] = values
    return held


def _allocate_const(
    owner: Owner,
    data: Any,
    dtype: object,
    extents: Sequence[object],
    annotations: dict[str, Any] | None = None,
) -> Opener:
    name = v.dtype_name(dtype)
    sizes = tuple(v.number(v.dim(e)) for e in _several(extents, "the extents"))
    more = v.mapping(annotations, "annotations= of T.allocate_const")
    numbers = [
        x.value if isinstance(x, tir.IntImm | tir.FloatImm) else x
        for x in _several(data, "the data of T.allocate_const")
    ]
    wrong = [x for x in numbers if not isinstance(x, int | float)]
    if wrong:
        raise TypeError(f"T.allocate_const takes numbers; got {arith.described(wrong[0])}")
    array = np.asarray(numbers, numpy_dtype(name))
    wanted = [int(n) for n in sizes if isinstance(n, tir.IntImm)]
    if len(wanted) != len(sizes) or math.prod(wanted) != array.size:
        raise ValueError(f"T.allocate_const: {array.size} numbers for the extents {list(sizes)}")
    var, line = PointerVar("", name), owner.line
    return Opener(
        lambda body: s.AllocateConst(var, name, sizes, array, body, more, line=line),
        var,
    )


def _realize(
    owner: Owner, buffer_slice: object, storage_scope: str = "", condition: object = True
) -> Opener:
    region = v.region_of(buffer_slice)
    held, line = v.number(condition), owner.line

    def wrap(body: s.Stmt) -> s.Stmt:
        made = s.BufferRealize(region.buffer, region.region, held, body, line=line)
        scope = tir.StringImm(storage_scope)
        return s.AttrStmt(region.buffer, "realize_scope", scope, made, line=line)

    return Opener(wrap)


def _prefetch(owner: Owner, buffer: object, bounds: Sequence[Any]) -> None:
    if not isinstance(buffer, Buffer):
        raise TypeError(f"T.prefetch takes a buffer; got {buffer!r}")
    ranges = [as_range(b) for b in bounds]
    owner.frames[-1].entries.append(s.Prefetch(buffer, tuple(ranges), line=owner.line))


def _while(owner: Owner, condition: object) -> Opener:
    held, line = v.number(condition), owner.line
    return Opener(lambda body: s.While(held, body, line=line))


# -- statements ----------------------------------------------------------------------------------
def _attr(owner: Owner, node: Any, attr_key: str = "", value: object = None) -> Opener:
    if isinstance(node, dict):  # as TVM 0.25 writes attributes of no node
        if len(node) != 1:
            raise v.Unread(None, "T.attr with several attributes is not read")
        ((attr_key, value),) = node.items()
        node = 0
    held, line = v.number(value), owner.line
    attr_key = v.text(attr_key, "the key of T.attr")
    if isinstance(node, int | float | str):
        node = v.number(node)
    return Opener(lambda body: s.AttrStmt(node, attr_key, held, body, line=line))


def _assert(owner: Owner, condition: object, message: object = "") -> Opener:
    held, line = v.number(condition), owner.line
    text = message if isinstance(message, tir.StringImm) else tir.StringImm(str(message or ""))
    return Opener(lambda body: s.AssertStmt(held, text, body, line=line))


def let(value: object, var: tir.Var | None, line: int) -> Opener:
    """``var = value`` for what follows; a number becomes a literal of the variable's dtype."""
    held = v.number(value)
    if var is not None and type(value) in (int, float):
        if is_float(var.dtype) or (is_int(var.dtype) and isinstance(value, int)):
            held = v.cast(value, var.dtype)
    bound = tir.Var("", held.dtype) if var is None else var
    if bound.dtype not in (held.dtype, "handle"):
        raise TypeError(f"the value `{held}` is {held.dtype}, its name {bound.dtype}; cast it")
    return Opener(lambda body: s.LetStmt(bound, held, body, line=line), bound)


def _let_stmt(
    owner: Owner, value: object, type_annotation: Any = None, *, var: tir.Var | None = None
) -> Opener:
    if var is None and type_annotation is not None:
        var = type_annotation if isinstance(type_annotation, tir.Var) else type_annotation()
    return let(value, var, owner.line)


def _env_thread(owner: Owner, thread_tag: str, dtype: str = "int32") -> tir.Var:
    thread_tag = v.text(thread_tag, "the name of a thread")
    var = tir.Var("", dtype)
    owner.func.threads[var] = s.IterVar(None, var, "thread", thread_tag)
    return var


def _launch_thread(owner: Owner, thread: object, extent: object) -> Opener:
    size = v.number(extent)
    if not is_int(size.dtype):
        raise TypeError(f"T.launch_thread: the extent `{size}` is {size.dtype}, and no integer")
    _check_threads(tir.as_dim(size), str(thread))
    if isinstance(thread, str):
        thread = _env_thread(owner, thread, size.dtype)
    if not isinstance(thread, tir.Var) or thread not in owner.func.threads:
        raise ValueError("T.launch_thread takes the name of a thread, or what T.env_thread gives")
    known = owner.func.threads[thread]
    if known.dom is None:
        zero = tir.as_dim(tir.const(0, size.dtype))
        dom = tir.Range.from_min_extent(zero, tir.as_dim(size))
        known = s.IterVar(dom, thread, "thread", known.thread_tag)
        owner.func.threads[thread] = known
    elif not tir.can_prove_equal(known.dom.extent, size):
        raise ValueError(
            f"the thread {known.thread_tag} has {known.dom.extent} and {size} as its extents"
        )
    key = "virtual_thread" if known.thread_tag == "vthread" else "thread_extent"
    axis, line = known, owner.line
    return Opener(lambda body: s.AttrStmt(axis, key, size, body, line=line), thread)


def _iter_var(owner: Owner, var: object, dom: object, iter_type: str, thread_tag: str) -> s.IterVar:
    kinds: dict[str, s.IterType] = {
        "ThreadIndex": "thread",
        "DataPar": "spatial",
        "CommReduce": "reduce",
        "Ordered": "scan",
        "DimInfo": "opaque",
        "Opaque": "opaque",
    }
    if iter_type not in kinds:
        raise ValueError(f"no axis is of the kind {iter_type!r}; there are {', '.join(kinds)}")
    if isinstance(var, str):
        var = tir.Var(var, "int32")
    if not isinstance(var, tir.Var):
        raise TypeError("T.iter_var takes a variable")
    return s.IterVar(None if dom is None else as_range(dom), var, kinds[iter_type], thread_tag)


def _if(owner: Owner, condition: object) -> Branch:
    held = v.number(condition)
    if held.dtype != "bool":
        raise TypeError(f"T.If takes a condition; got an expression of dtype {held.dtype}")
    return Branch(owner.frames, "if", owner.line, held)


def _then(owner: Owner) -> Branch:
    return Branch(owner.frames, "then", owner.line)


def _else(owner: Owner) -> Branch:
    return Branch(owner.frames, "else", owner.line)


def _evaluate(owner: Owner, value: object) -> None:
    owner.frames[-1].entries.append(s.Evaluate(v.number(value), line=owner.line))


def store(
    owner: Owner,
    buffer: object,
    value: object,
    indices: object,
    predicate: tir.PrimExpr | None = None,
) -> None:
    """``buffer[indices] = value``; the value is cast to what the buffer holds."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"only elements of buffers are assigned; got {buffer!r}")
    places = indices if isinstance(indices, tuple | list) else (indices,)
    at = BufferLoad(buffer, [v.vector_index(i) for i in places])
    # A number is a literal of what the buffer holds, and has to fit.
    element = element_of(buffer.dtype)
    held = v.cast(value, element) if isinstance(value, float) else v.number(value)
    if lanes_of(held.dtype) != lanes_of(at.dtype):
        raise TypeError(
            f"{held.dtype} is stored where {buffer.name} holds {at.dtype}: the lanes differ"
        )
    if held.dtype == "handle" and buffer.dtype != "handle":
        raise TypeError(f"a handle is stored in {buffer.name}, which holds {buffer.dtype}")
    held = v.cast(held, with_lanes(element, lanes_of(at.dtype)))
    made = s.BufferStore(buffer, held, at.indices, predicate, line=owner.line)
    owner.frames[-1].entries.append(made)


def _buffer_store(
    owner: Owner, buffer: object, value: object, indices: object, predicate: object = None
) -> None:
    store(owner, buffer, value, indices, None if predicate is None else v.number(predicate))


def _func_attr(owner: Owner, attrs: dict[str, Any]) -> None:
    for key, value in v.mapping(attrs, "T.func_attr").items():
        if key == "global_symbol":
            value = v.text(value, "global_symbol")
        if key in owner.func.attrs and owner.func.attrs[key] is not value:
            raise ValueError(f"the attribute {key!r} of the function is said twice")
        owner.func.attrs[key] = value


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "block": _block,
    "sblock": _block,
    "init": _init,
    "reads": _reads,
    "writes": _writes,
    "where": _where,
    "block_attr": _block_attr,
    "sblock_attr": _block_attr,
    "serial": _loop("serial"),
    "parallel": _loop("parallel"),
    "vectorized": _loop("vectorized"),
    "unroll": _loop("unroll"),
    "thread_binding": _thread_binding,
    "grid": _grid,
    "Buffer": _buffer,
    "buffer": _buffer,
    "buffer_decl": _buffer,
    "match_buffer": _match_buffer,
    "alloc_buffer": _alloc_buffer,
    "alloc_local": partial(_alloc_in, "local"),
    "alloc_shared": partial(_alloc_in, "shared"),
    "sblock_alloc_buffer": _alloc_buffer,
    "decl_buffer": _decl_buffer,
    "allocate": _allocate,
    "allocate_const": _allocate_const,
    "realize": _realize,
    "prefetch": _prefetch,
    "While": _while,
    "attr": _attr,
    "Assert": _assert,
    "If": _if,
    "Then": _then,
    "Else": _else,
    "LetStmt": _let_stmt,
    "env_thread": _env_thread,
    "launch_thread": _launch_thread,
    "iter_var": _iter_var,
    "evaluate": _evaluate,
    "buffer_store": _buffer_store,
    "func_attr": _func_attr,
    "meta_var": lambda owner, value: MetaVar(value),
}
