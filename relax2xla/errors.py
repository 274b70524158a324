"""Every exception class of relax2xla: cause, example, fix.

User mistakes derive from :class:`TVMError` (the name that programs written for TVM catch) or, where
Python programmers expect it, from ``ValueError``/``TypeError`` as well. ``NotImplementedError`` and
``AttributeError`` are never covered by :class:`TVMError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass


class TVMError(RuntimeError):
    """Root of the errors that relax2xla raises for a user's mistake; a RuntimeError, as in TVM."""


class OpError(TVMError, ValueError):
    """A call of an operator that cannot be right.

    Cause: a wrong rank, dtype, axis or shape. Example: ``R.nn.softmax(x, axis=5)`` on a matrix.
    Fix: the message names the argument, what it got and what it accepts.
    """


class OperandTypeError(OpError, TypeError):
    """Operands of kinds or dtypes that do not go together; a TypeError, as in TVM.

    Example: ``R.add`` of float32 and int32. Fix: ``R.astype`` one of them.
    """


class DivisionByZeroError(TVMError, ZeroDivisionError):
    """A scalar expression that divides by the literal 0, such as ``n // 0``."""


class StructInfoError(TVMError, ValueError):
    """Struct info that contradicts itself or the value it is given to.

    Example: ``TensorStructInfo(shape=(2, 3), ndim=3)``. Fix: give one of the two.
    """


class WellFormedError(TVMError, ValueError):
    """An IRModule breaks a rule of Relax: scoping, A-normal form, purity or symbolic variables.

    ``function``: the name of the function; ``span``: of the binding, where its source is known.
    """

    def __init__(self, message: str, function: str = "", span: object = None) -> None:
        super().__init__(message)
        self.function, self.span = function, span


class StructuralEqualError(TVMError, ValueError):
    """Two IR trees differ; the message holds the path of the first difference and both sides."""


class BuilderError(TVMError, ValueError):
    """A builder used out of order, such as ``emit_output`` outside a dataflow block."""


class DiagnosticError(TVMError):
    """TVMScript text that cannot be parsed; the message shows file, line and carets.

    ``span`` is the place (``ir.Span``) and ``message`` what is wrong there, where both are known.
    """

    def __init__(self, text: str = "", span: object = None, message: str | None = None) -> None:
        super().__init__(text)
        self.span = span
        self.message = text if message is None else message


class TransformError(TVMError):
    """A pass that cannot run on this module; the message names the pass and the function."""


class NoExpression(TransformError):
    """A call whose gradient no expression of operators says; the pass Gradient asks JAX then.

    Example: ``R.nn.conv2d`` in a layout whose gradient is not written down.
    """


class LegalizeError(TransformError):
    """An operator that cannot be lowered to StableHLO as it stands (an unknown shape, for example).

    Fix: bind the symbolic dimension, or run the function through the virtual machine, which
    specialises it for the shapes of each call.
    """


class StableHLOParseError(TVMError, ValueError):
    """Text or bytes that are no valid StableHLO program."""


class EmitError(TVMError, ValueError):
    """A Relax program that cannot be written as StableHLO; the message names the binding."""


class BytecodeError(TVMError, ValueError):
    """Bytecode that cannot run: a register read before it is written, a jump out of its function.

    Fix: the message names function and instruction; see ``VMExecutable.as_text()``.
    """


class RunError(TVMError):
    """A program of the virtual machine that cannot go on, such as one that recurses too deep."""


class BudgetError(TVMError, ValueError):
    """A value that is too large, or a program that is nested too deep.

    Fix: where the size is meant, raise the limit (``RELAX2XLA_MEMORY_LIMIT``, ``budget.use``).
    """


class XlaError(TVMError):
    """XLA does not compile or run a program; the message is XLA's own reason.

    Examples: a custom call that this jaxlib has not, arrays that do not fit the device's memory.
    """


class CompilerError(TVMError, RuntimeError):
    """There is no C++ compiler, or it does not compile the source of an external module.

    Fix: the message has the command and what the compiler printed; install one, or set CXX.
    """


class ScheduleError(TVMError, ValueError):
    """A step of a schedule that names what is not there, or sizes that do not go together."""


class AssertError(TVMError, AssertionError):
    """An ``R.assert_op`` of the program that does not hold."""


class CallError(TVMError, ValueError):
    """Arguments that do not fit a compiled function: function, parameter, expected and given."""


class ArgumentTypeError(CallError, TypeError):
    """An argument of another kind than its parameter, such as a shape for a number."""


class DeviceError(TVMError):
    """A device that this process cannot use; the message lists the ones it can."""


class FileFormatError(TVMError, ValueError):
    """A file that is not what its name says, is truncated, or breaks a rule of its format."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One thing that an importer cannot convert.

    ``op``: the source's operator, ``reason``: what of it is not supported, ``nodes``: names of the
    nodes in the source, ``hint``: a workaround if there is one.
    """

    op: str
    reason: str
    nodes: tuple[str, ...] = ()
    hint: str = ""

    def as_text(self) -> str:
        """For people: one line, and one more for the hint."""
        where = ", ".join(self.nodes[:4]) + (", ..." if len(self.nodes) > 4 else "")
        line = f"  {self.op} x{max(1, len(self.nodes))}: {self.reason}"
        line += f" (at {where})" if where else ""
        return f"{line}\n    hint: {self.hint}" if self.hint else line


class OpNotImplemented(TVMError, NotImplementedError):
    """A model uses operators or attributes that have no converter.

    Importers collect *all* gaps before they fail. ``error.gaps`` is the list, and
    ``error.report()`` the same as plain data (for ``json.dumps``).
    """

    def __init__(self, msg: str, gaps: Iterable[Gap] = ()) -> None:
        self.gaps = tuple(gaps)
        lines = [msg, *(gap.as_text() for gap in self.gaps)]
        super().__init__("\n".join(lines))

    def report(self) -> list[dict[str, object]]:
        """The gaps as a list of dictionaries with keys op, reason, nodes and hint."""
        return [asdict(gap) for gap in self.gaps]


class UnsupportedError(TVMError, ValueError):
    """One construct of a source program that has no counterpart here; the message names it."""
