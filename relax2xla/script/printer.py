"""TVMScript text of Relax programs, in TVM's layout.

One pass writes lines. Symbolic variables and the module's alias are defined at the top of the
outermost function, where TVM puts them, so these lines are kept apart (``_head``) until the
function ends. Expressions are written with an explicit stack; a function or branch *inside* an
expression (which A-normal form never has) is written before the statement that uses it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relax2xla import ir, tir
from relax2xla.errors import BudgetError, TVMError
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.lattice import free_symbolic_vars, held_shapes
from relax2xla.ir.object_path import ObjectPath
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.source_names import SOURCE_NAMES, module_of, names_as_attribute
from relax2xla.script.expr_text import ExprPrinter
from relax2xla.script.literals import quote
from relax2xla.script.marks import Marks, marked
from relax2xla.script.metadata import encode
from relax2xla.script.names import Names
from relax2xla.script.prim_func.printer import PrimFuncPrinter
from relax2xla.script.source import SOURCE_MARK

# Attributes of modules that hold Python objects, which a comment names.
WITHOUT_TEXT = ("external_mods",)
_ROWS = ("relax.stablehlo.", "relax.chlo.", "relax.sdy.")
OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."

# The package that the header names. The names of tvm, where they are installed, put theirs here.
PACKAGE = "relax2xla.script"


# Options of TVM's script() that shape what a Relax program does not have (loops, buffers, notes):
# their defaults are accepted.
ONLY_DEFAULTS: dict[str, Any] = {
    "buffer_dtype": "float32",
    "int_dtype": "int32",
    "float_dtype": "void",
    "show_object_address": False,
    "extra_config": None,
}


def script(
    node: Any,
    *,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    obj_to_underline: Sequence[Any] | None = None,
    path_to_underline: Sequence[ObjectPath] | None = None,
    obj_to_annotate: Mapping[Any, str] | None = None,
    path_to_annotate: Mapping[ObjectPath, str] | None = None,
    **options: Any,
) -> str:
    """TVMScript text of a module, function, expression, binding, block, struct info or type.

    ``name``: of a module or function that has none (Module, main); ``show_meta``: end with the
    arrays that have no literal, so that the text alone parses; ``ir_prefix``, ``tir_prefix``,
    ``relax_prefix``: names of the namespaces; ``module_alias``: how a module's functions name it
    ("" : by its own name); ``indent_spaces``; ``syntax_sugar``: calls that give nothing are
    statements; ``show_all_struct_info``: annotate also what the parser can infer;
    ``verbose_expr``: declare above a single expression, struct info or type the variables that it
    mentions; ``show_sources``: the source's names, of layers as comments ``#: encoder.0`` behind
    bindings, of arguments and results in the function attribute ``source_names``, of weights among
    the arrays, all of which the parser reads; ``print_line_numbers``: as in an editor;
    ``obj_to_underline``: modules, functions, bindings, and statements and expressions of loop-level
    functions, each underlined; ``obj_to_annotate``: notes, which are comments, by function, binding
    or statement; ``path_to_underline``, ``path_to_annotate``: the same by the way from ``node``;
    ``num_context_lines``: so many lines around underlines only (None and -1: all). Other options
    of TVM may be given at their defaults only. Raises ValueError for another value of those and
    for what cannot be marked, TypeError for unknown options, TVMError for a prefix
    that is no name, BudgetError for what is nested too deep.
    """
    for option, default in ONLY_DEFAULTS.items():
        if options.pop(option, default) not in (default, [], {}):
            raise ValueError(f"script(): {option} is supported as {default!r} only")
    marks = Marks(
        node, obj_to_underline or (), path_to_underline or (), obj_to_annotate, path_to_annotate
    )
    unknown = [o for o in options if o not in _Printer.OPTIONS]
    if unknown:
        known = ", ".join(sorted(_Printer.OPTIONS))
        raise TypeError(f"script() has no option {unknown[0]!r}; it has {known}")
    try:
        text = _Printer(marks=marks, **options).text(node)
    except RecursionError:
        raise BudgetError(
            "the program is nested too deep for Relax text; Python, whose grammar it has, reads at "
            "most 100 levels. Write it as StableHLO"
        ) from None
    if not (print_line_numbers or marks):
        return text
    text, spans = marks.taken(text)
    return marked(text, spans, print_line_numbers, num_context_lines)


class _Printer(ExprPrinter):
    """State of one text."""

    OPTIONS = frozenset(
        ("name", "show_meta", "ir_prefix", "tir_prefix", "relax_prefix", "module_alias",
         "indent_spaces", "syntax_sugar", "show_all_struct_info", "verbose_expr", "show_sources")
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        ir_prefix: str = "I",
        tir_prefix: str = "T",
        relax_prefix: str = "R",
        module_alias: str = "cls",
        indent_spaces: int = 4,
        syntax_sugar: bool = True,
        show_all_struct_info: bool = True,
        verbose_expr: bool = False,
        show_sources: bool = False,
        marks: Marks | None = None,
    ) -> None:
        self.marks = marks or Marks(None)
        self.name = name
        self.show_meta = show_meta
        for option, given in (("ir", ir_prefix), ("tir", tir_prefix), ("relax", relax_prefix)):
            if not given.isidentifier():
                raise TVMError(f"script(): {option}_prefix must be a name; got {given!r}")
        self.prefixes = {"ir": ir_prefix, "tir": tir_prefix, "relax": relax_prefix}
        self.alias = module_alias
        self.step = " " * indent_spaces
        self.sugar = syntax_sugar
        self.all_info = show_all_struct_info
        self.verbose = verbose_expr
        self.sources = show_sources
        self.names = Names([ir_prefix, tir_prefix, relax_prefix, "metadata", module_alias])
        self.used: set[str] = set()
        self.lines: list[str] = []
        self.indent = ""
        # Definitions at the top of the outermost function, and how far they are indented.
        self.head: list[str] = []
        self.head_indent = ""
        # True while a signature is written: there symbolic dimensions are strings.
        self.quoted = False
        self.dims_text: dict[tuple[bool, tuple[tir.Dim, ...]], str] = {}
        self.tables: dict[str, list[Any]] = {}
        self.table_index: dict[int, str] = {}
        self.module: ir.IRModule | None = None
        self.module_name = ""
        self.alias_defined = False
        # Whether the text is that of a part of a program: a single node.
        self.alone = False
        # Ids of the variables that the outermost function uses; None: not counted yet.
        self.in_use: set[int] | None = None
        self.root: ir.Expr | None = None

    # -- the whole text --------------------------------------------------------------------------
    def text(self, node: Any) -> str:
        """The text of ``node`` with header and metadata."""
        if isinstance(node, ir.IRModule):
            self.print_module(node)
            self.marks.lines(node, self.lines, 0)
        elif isinstance(node, ir.Function):
            self.print_public(node, self.name or global_symbol(node) or "main")
        elif isinstance(node, tir.PrimFunc):
            self.print_prim_func(node, str(node.attrs.get("global_symbol", self.name or "main")))
        else:
            self.alone = True
            self.single_node(node)
        tail: list[str] = []
        if self.tables and self.show_meta:
            arrays = encode(self.tables, self.sources)
            tail = ["", f'metadata = {self.prefix("ir")}.metadata("""{arrays}""")']
        elif self.tables:
            tail = ["", OMITTED]
        header = [
            f"# from {PACKAGE} import {room} as {prefix}"
            if room != prefix
            else f"# from {PACKAGE} import {room}"
            for room, prefix in self.prefixes.items()
            if room in self.used and not self.alone
        ]
        return "\n".join([*header, *([""] if header else []), *self.lines, *tail])

    def line(self, text: str) -> None:
        """One statement at the current depth."""
        self.lines.append(self.indent + text if text else "")

    @contextmanager
    def indented(self) -> Generator[None]:
        """Statements inside are one step deeper."""
        outer = self.indent
        self.indent += self.step
        yield
        self.indent = outer

    # -- modules and functions -------------------------------------------------------------------
    def print_module(self, mod: ir.IRModule) -> None:
        """A class; functions in TVM's order: loop-level ones first, by name, main last.

        A StableHLO program keeps its own order, which it has again when it is written back.
        """
        self.module = mod
        self.module_name = self.names.fresh(self.name or "Module")
        self.line(f"@{self.prefix('ir')}.ir_module")
        self.line(f"class {self.module_name}:")
        with self.indented():
            start = len(self.lines)
            written = {k: v for k, v in mod.attrs.items() if k not in WITHOUT_TEXT}
            for name in (k for k in mod.attrs if k in WITHOUT_TEXT):
                self.line(f"# {name}: {', '.join(type(v).__name__ for v in mod.attrs[name])}")
            if written:
                self.line(f"{self.prefix('ir')}.module_attrs({self.sorted_dict(written)})")
            if mod.global_infos:
                infos = self.sorted_dict(mod.global_infos)
                self.line(f"{self.prefix('ir')}.module_global_infos({infos})")
            items = list(mod.items())
            if not any(_calls_rows(func) for func in mod.values()):
                items.sort(key=lambda kv: (_priority(*kv), kv[0].name_hint))
            after_def = False
            for gvar, func in items:
                if after_def:
                    self.line("")
                after_def = not isinstance(func, ir.ExternFunc)
                if isinstance(func, ir.Function):
                    self.print_public(func, gvar.name_hint)
                elif isinstance(func, tir.PrimFunc):
                    self.print_prim_func(func, gvar.name_hint)
                else:
                    text = f"{self.relax('ExternFunc')}({quote(func.global_symbol)})"
                    self.line(f"{gvar.name_hint} = {text}")
            if len(self.lines) == start:
                self.line("pass")

    def print_public(self, func: ir.Function, name: str) -> None:
        """An outermost function."""
        attrs = dict(func.attrs)
        flags: list[str] = [] if func.is_pure else ["pure=False"]
        if attrs.get("global_symbol") == name:
            del attrs["global_symbol"]
        elif "global_symbol" not in attrs:
            flags.append("private=True")
        outer, self.lines = self.lines, []
        self.head, self.head_indent = [], self.indent + self.step
        self.dims_text.clear()
        self.alias_defined = False
        self.root, self.in_use = func, None
        with self.names.scope():
            shown = self.names.fresh(name) if self.module is None else name
            self.quoted = True
            signature = self.signature(func, shown)
            self.quoted = False
            names = {p.name_hint: self.names.of[id(p)] for p in func.params}
            if "arg_attrs" in attrs:  # by the names of parameters
                held = attrs["arg_attrs"].items()
                attrs["arg_attrs"] = {names.get(name, name): value for name, value in held}
            if self.sources:
                infos = [p.struct_info for p in func.params]
                dims = {self.names.of[id(v)]: v.name for i in infos for v in free_symbolic_vars(i)}
                shown = [self.names.of[id(p)] for p in func.params]
                if told := names_as_attribute(func, shown, dims):
                    attrs[SOURCE_NAMES] = told
            with self.indented():
                if attrs:
                    text = f"{self.relax('func_attr')}({self.sorted_dict(attrs)})"
                    self.head.append(self.indent + text)
                self.body(func.body)
        body, self.lines = self.lines, outer
        start = len(self.lines)
        self.decorate(flags)
        self.line(signature)
        self.lines += self.head
        self.lines += body
        self.marks.lines(func, self.lines, start)
        self.head = []

    def print_local(self, func: ir.Function, name: str, inline: bool = False) -> None:
        """A function inside another one, bound or ``inline``: an operand as it stands."""
        flags = [*(["private=True"] if inline else []), *([] if func.is_pure else ["pure=False"])]
        self.decorate(flags)
        with self.names.scope():
            self.line(self.signature(func, name))
            with self.indented():
                if func.attrs:
                    self.line(f"{self.relax('func_attr')}({self.sorted_dict(func.attrs)})")
                self.body(func.body)
        self.line("")

    def decorate(self, flags: Sequence[str]) -> None:
        """``@R.function`` with its flags."""
        arguments = f"({', '.join(flags)})" if flags else ""
        self.line(f"@{self.relax('function')}{arguments}")

    def signature(self, func: ir.Function, name: str) -> str:
        """The line of ``def``. Like TVM, the result names symbolic variables before parameters."""
        held = held_shapes(func.ret_struct_info)
        named = {p: self.names.define(p, p.name_hint) for p in func.params if p in held}
        ret = self.info(func.ret_struct_info)
        params = [
            f"{named.get(p) or self.names.define(p, p.name_hint)}: {self.info(p.struct_info)}"
            for p in func.params
        ]
        return f"def {name}({', '.join(params)}) -> {ret}:"

    def print_prim_func(self, func: tir.PrimFunc, name: str) -> None:
        """A loop-level function."""
        if isinstance(func.body, tir.Text):
            self.print_prim_text(func, func.body.text, name)
            return
        start = len(self.lines)
        for line in self._kernel_printer().lines(func, name):
            self.line(line)
        self.marks.lines(func, self.lines, start)

    def _kernel_printer(self) -> PrimFuncPrinter:
        return PrimFuncPrinter(
            lambda: self.prefix("tir"),
            self.value,
            self._kernel,
            step=self.step,
            reserved=[*self.prefixes.values(), *([self.module_name] if self.module else [])],
            sugar=self.sugar,
            marks=self.marks,
        )

    def kernel_lines(self, node: tir.Node, ir_prefix: str = "") -> list[str]:
        return self._kernel_printer().alone(node, self.verbose, ir_prefix)

    def _kernel(self, name: str) -> str:
        return f"{self.module_name}.{name}" if self.module is not None else name

    def print_prim_text(self, func: tir.PrimFunc, text: str, name: str) -> None:
        """A loop-level function that is a text: its signature around it."""
        prefix = self.prefix("tir")
        attrs = dict(func.attrs)
        public = attrs.pop("global_symbol", None) == name
        self.line(f"@{prefix}.prim_func" + ("" if public else "(private=True)"))
        lines = text.split("\n")
        signature: list[str] = []
        for p in func.params:
            buffer = p.name.removesuffix("_handle")
            start = f"{buffer} = {prefix}.match_buffer({p.name}, "
            if buffer != p.name and lines[0].startswith(start) and lines[0].endswith(")"):
                # A handle whose first use is its buffer is written as this buffer.
                signature.append(f"{buffer}: {prefix}.Buffer({lines.pop(0)[len(start) :]}")
            else:
                signature.append(f"{p.name}: {prefix}.{p.dtype}")
        params = ", ".join(signature)
        ret = "" if func.ret_type is None else f" -> {prefix}.{func.ret_type}"
        self.line(f"def {name}({params}){ret}:")
        with self.indented():
            if attrs:
                self.line(f"{prefix}.func_attr({self.sorted_dict(attrs)})")
            for line in lines:
                self.line(line)

    def body(self, seq: ir.SeqExpr) -> None:
        """The statements of a function."""
        for block in seq.blocks:
            self.block(block)
        self.line(f"return {self.expr(seq.body)}")

    # -- statements ------------------------------------------------------------------------------
    def block(self, block: ir.BindingBlock) -> None:
        """Bindings, under ``with R.dataflow():`` if they are one."""
        if not isinstance(block, ir.DataflowBlock):
            for b in block.bindings:
                self.binding(b)
            return
        self.line(f"with {self.relax('dataflow')}():")
        with self.indented():
            for b in block.bindings:
                self.binding(b, dataflow=True)
            outputs = [
                self.names.of[id(b.var)]
                for b in block.bindings
                if not isinstance(b.var, ir.DataflowVar) and id(b.var) in self.names.of
            ]
            self.line(f"{self.relax('output')}({', '.join(outputs)})")

    def binding(self, b: ir.Binding, dataflow: bool = False) -> None:
        """One binding; the variable is named after its value is written, so that ``x = f(x)``
        refers to the older x.
        """
        start = len(self.lines)
        self._binding(b, dataflow)
        self.marks.lines(b, self.lines, start)

    def _binding(self, b: ir.Binding, dataflow: bool) -> None:
        if isinstance(b, ir.MatchCast):
            value = self.expr(b.value)
            text = f"{self.relax('match_cast')}({value}, {self.info(b.struct_info)})"
            note = self.annotation(b.var) if self.all_info else ""
            source = self.source_note(b)
            self.line(f"{self.names.define(b.var, b.var.name_hint)}{note} = {text}{source}")
            return
        if not isinstance(b, ir.VarBinding):
            raise TypeError(f"script() has no text for a {type(b).__name__}")
        value = b.value
        if isinstance(value, ir.If):
            note = self.annotation(b.var)
            self.branches(value, self.names.define(b.var, b.var.name_hint) + note)
        elif isinstance(value, ir.Function):
            self.print_local(value, self.names.define(b.var, b.var.name_hint))
        elif isinstance(b.var, ir.DataflowVar) == dataflow and self.is_statement(b):
            self.line(self.expr(value) + self.source_note(b))
        else:
            text = self.expr(value)
            if isinstance(value, ir.Tuple) and len(value) > 1:
                text = text[1:-1]
            note = self.annotation(b.var, value)
            source = self.source_note(b)
            self.line(f"{self.names.define(b.var, b.var.name_hint)}{note} = {text}{source}")

    def source_note(self, b: ir.Binding) -> str:
        """The comment with the source's name of what a binding computes, and of its module."""
        span = (b.span or b.var.span) if self.sources else None
        if span is None or span.kind != "name" or not _can_be_read(span.name):
            return ""
        module = module_of(span)
        behind = f"{SOURCE_MARK}{module}" if _can_be_read(module) else ""
        return f"{SOURCE_MARK}{span.name}{behind}"

    def is_statement(self, b: ir.VarBinding) -> bool:
        """Whether a call is written without a variable: it gives nothing and nothing uses it.

        The parser makes such a variable of the kind that its block holds inside.
        """
        if not self.sugar or not isinstance(b.value, ir.Call):
            return False
        void = ir.TupleStructInfo(())
        if b.var.struct_info_ != void or b.value.struct_info_ != void:
            return False
        if self.root is None:
            return False
        if self.in_use is None:
            nodes = post_order_deep(self.root)
            self.in_use = {id(node) for node in nodes if isinstance(node, ir.Var)}
        return id(b.var) not in self.in_use

    def branches(self, value: ir.If, target: str) -> None:
        """``if`` and ``else``, both ending in ``target = result``."""
        cond = self.expr(value.cond)
        for header, seq in ((f"if {cond}:", value.true_branch), ("else:", value.false_branch)):
            self.line(header)
            with self.indented(), self.names.scope():
                for block in seq.blocks:
                    self.block(block)
                text = self.expr(seq.body)
                if isinstance(seq.body, ir.Tuple) and len(seq.body) > 1:
                    text = text[1:-1]
                self.line(f"{target} = {text}")


def _priority(gvar: ir.GlobalVar, func: Any) -> int:
    if gvar.name_hint == "main":
        return 4
    return 3 if isinstance(func, ir.Function) else 1 if isinstance(func, tir.PrimFunc) else 2


def _can_be_read(name: str) -> bool:
    """Whether a comment can have this name: it is one line, and ends nowhere before its end."""
    return name.isprintable() and name.strip() == name != "" and SOURCE_MARK not in name


def _calls_rows(func: Any) -> bool:
    """Whether a function is a StableHLO program: it calls one of the rows."""
    if not isinstance(func, ir.Function):
        return False
    values = (b.value for block in func.body.blocks for b in block.bindings)
    ops = (v.op for v in values if isinstance(v, ir.Call))
    return any(isinstance(op, ir.Op) and op.name.startswith(_ROWS) for op in ops)
