"""Loops, and the threads that run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import tir
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.forms.owner import Owner
from relax2xla.script.prim_func.frames import Loop, Opener, widest
from relax2xla.tir import stmt as s
from relax2xla.tir.node import is_int


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


def _while(owner: Owner, condition: object) -> Opener:
    held, line = v.number(condition), owner.line
    return Opener(lambda body: s.While(held, body, line=line))


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


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "serial": _loop("serial"),
    "parallel": _loop("parallel"),
    "vectorized": _loop("vectorized"),
    "unroll": _loop("unroll"),
    "thread_binding": _thread_binding,
    "grid": _grid,
    "While": _while,
    "env_thread": _env_thread,
    "launch_thread": _launch_thread,
}
