"""Which functions of the bytecode call which."""

from __future__ import annotations

from relax2xla.vm.code.bytecode import Call, Code, Func, FunctionRow, reads

# Builtins that call a function value.
CLOSURE_CALLS = ("vm.builtin.invoke_closure", "vm.builtin.invoke_with")

# Functions that call each other in a row so long run under Python's usual recursion limit.
_SHALLOW = 50


def callees(row: FunctionRow) -> list[int]:
    """The functions that a function calls or has as values, in order, each once."""
    found: dict[int, None] = {}
    for ins in row.body:
        found.update((a.index, None) for a in reads(ins) if isinstance(a, Func))
        if isinstance(ins, Call):
            found[ins.func] = None
    return list(found)


def goes_deep(code: Code, index: int) -> bool:
    """Whether function ``index`` may come to itself, or may call through very many others.

    Which function a closure is, only a run knows.
    """
    height: dict[int, int] = {}
    on_way = {index}
    stack = [(index, iter(callees(code.functions[index])))]
    while stack:
        at, rest = stack[-1]
        callee = next(rest, None)
        if callee is None:
            on_way.discard(at)
            below = (height.get(n, 0) for n in callees(code.functions[at]))
            height[at] = 1 + max(below, default=0)
            stack.pop()
        elif callee in on_way or code.functions[callee].name in CLOSURE_CALLS:
            return True
        elif callee not in height and code.functions[callee].kind == "vm":
            on_way.add(callee)
            stack.append((callee, iter(callees(code.functions[callee]))))
    return height[index] > _SHALLOW


def regions(code: Code, index: int) -> list[str]:
    """Names of the XLA programs that function ``index`` may run, in order."""
    todo, seen, found = [index], {index}, dict[str, None]()
    while todo:
        row = code.functions[todo.pop(0)]
        if row.kind == "xla":
            found[row.name] = None
        fresh = [n for n in callees(row) if n not in seen]
        todo += fresh
        seen.update(fresh)
    return list(found)
