"""Calls of operators as text, the same in TVM and here: tables of operands and attributes.

In the texts ``t(2, n, dtype="int32")`` is a tensor, ``u(2)`` one of unknown shape and known rank,
``u()`` of unknown rank too, ``s(2, n)`` a shape, ``su(2)`` a shape of unknown dimensions,
``c(value, dtype)`` a constant, ``p(value)`` a scalar, ``tup(...)`` a tuple, ``n``, ``m``, ``h``
symbolic integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.op.parity.odd_cases import ODD

ANY = ("t(2,3)", "t(n,3)", "t()", "u(2)", "u()", "t(0,3)", 't(2,3,dtype="")')
SOME = ("t(2,3)", "t(n,m)", "u(2)", "u()")
REAL = (*ANY, 't(2,3,dtype="int32")', 't(2,3,dtype="bool")')
NOT_TENSORS = ("tup(t(2))", "s(2,3)", "p(1)")
PAIRS = (
    "t(2,3), t(2,3)",
    "t(2,3), t(3)",
    "t(2,1), t(3)",
    "t(n,3), t(n,3)",
    "t(n,3), t(1,3)",
    "t(n,3), t(m,3)",
    "t(n,3), t(2,3)",
    "t(n+1,3), t(1+n,3)",
    "t(), t(2,3)",
    "u(), t(2,3)",
    "u(2), t(2,3)",
    "u(2), t()",
    "u(2), u(3)",
    "t(2,3), t(2,4)",
    "t(0,3), t(1,3)",
    't(2,3), t(2,3,dtype="int32")',
    't(2,3), t(2,3,dtype="")',
    "t(2,3), tup(t(2))",
    "t(2,3), p(1.0)",
    't(2,3,dtype="int32"), t(3,dtype="int32")',
    't(2,3,dtype="bool"), t(3,dtype="bool")',
)
FLOAT_UNARY = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "log",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
ANY_UNARY = [
    "abs",
    "ceil",
    "floor",
    "negative",
    "round",
    "sign",
    "square",
    "trunc",
    "clip",
    "bitwise_not",
    "logical_not",
]
TESTS = ("isfinite", "isinf", "isnan")
ARITHMETIC = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "mod",
    "floor_mod",
    "power",
    "maximum",
    "minimum",
]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ("left_shift", "right_shift", "atan2", "log_add_exp")
REDUCTIONS = ["sum", "prod", "max", "min", "mean", "variance", "std"]
AXES = (
    "",
    "0",
    "1",
    "-1",
    "-3",
    "2",
    "[0,1]",
    "[1,-1]",
    "[]",
    "axis=0,keepdims=True",
    "[-1,0],True",
)

# name: (operands, attributes); one call of each combination.
TABLE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    *((f"op.{k}", (*SOME, 't(2,dtype="int32")', "tup(t(2))"), ("",)) for k in FLOAT_UNARY),
    *((f"op.{k}", (*REAL, *NOT_TENSORS), ("",)) for k in ANY_UNARY if k != "clip"),
    *((f"op.{k}", (*SOME, 't(2,dtype="int32")', "tup(t(2))"), ("",)) for k in TESTS),
    ("op.clip", SOME, ("p(0),p(1)", "0,1", "0.0,1.0", "t(),p(1)")),
    *((f"op.{k}", PAIRS, ("",)) for k in (*ARITHMETIC[:3], "maximum", "equal", "less")),
    *((f"op.{k}", PAIRS[:6] + PAIRS[-6:], ("",)) for k in (*ARITHMETIC[3:8], *COMPARISONS[1:3])),
    *((f"op.{k}", PAIRS[:4] + PAIRS[-6:], ("",)) for k in (*LOGICAL, *SHIFTS)),
    ("op.astype", REAL, ('"float16"', '"int64"', '"bool"')),
    ("op.wrap_param", ("c([1.0],'float32')",), ('"float16"', "")),
    *(
        (f"op.{k}", (*SOME, 't(2,3,dtype="int32")', "t()", "tup(t(2))"), AXES)
        for k in ("sum", "max")
    ),
    *((f"op.{k}", SOME, ("", "1", "[0],True")) for k in REDUCTIONS),
    *(
        (
            f"op.{k}",
            (*SOME, "t()", 't(2,3,dtype="int32")'),
            ("", "0", "-1", "2", "1,True", "None,True"),
        )
        for k in ("argmax", "argmin")
    ),
    ("op.median", SOME, ("", "0", "[0,1]", "1,True")),
    *(
        (
            f"op.{k}",
            (*SOME, "t()", "t(3)", 't(2,3,dtype="int32")'),
            ("", "0", "-1", "2", "1,'int64'", "None,'float64',True"),
        )
        for k in ("cumsum", "cumprod")
    ),
    ("op.sort", (*SOME, "t()"), ("", "0", "2", "-1,True")),
    ("op.argsort", (*SOME, "t()"), ("", "0", "2", "-1,True,'int64'")),
    (
        "op.topk",
        SOME,
        (
            "",
            "2",
            "2,0",
            "5",
            "0",
            "2,-1,'values'",
            "2,-1,'indices'",
            "1,0,'both',False,'int64'",
            "1,2",
            "-1",
        ),
    ),
    (
        "op.bucketize",
        ("t(2,3), t(4)", "u(2), t(4)", "t(2,3), t(4,4)", "t(n), t(m)"),
        ("", "out_int32=True", "right=True"),
    ),
    (
        "op.broadcast_to",
        ("t(2,1)", "t(3)", "t(n,1)", "u(2)", "u()"),
        ("(2,3)", "(n,3)", "(4,2,3)", "s(2,3)", "su(2)", "su()", "(2,)", "(2,-1)"),
    ),
    (
        "op.reshape",
        ("t(2,3)", "t(n,4)", "t(n,m)", "u(2)", "u()", "t(0,3)", "t()"),
        (
            "(3,2)",
            "(6,)",
            "(-1,)",
            "(0,-1)",
            "(n,2,2)",
            "(-1,2)",
            "(4,2)",
            "(2,-1,-1)",
            "s(6)",
            "su(2)",
            "()",
            "(n*4,)",
            "(m,n)",
            "(1,)",
        ),
    ),
    ("op.flatten", (*SOME, "t()", "t(n,3,4)", "t(5)"), ("",)),
    ("op.expand_dims", (*SOME, "t()"), ("0", "-1", "[0,-1]", "[0,1,3]", "[1,1]", "5", "[]", "-4")),
    (
        "op.squeeze",
        ("t(2,1,3,1)", "t(n,1)", "u(2)", "u()", "t()", "t(1)"),
        ("", "1", "-1", "[1,3]", "0", "[1,1]", "[]", "5"),
    ),
    (
        "op.permute_dims",
        ("t(2,3,4)", "t(n,m,h)", "u(3)", "u()"),
        ("", "[2,0,1]", "[0,1]", "[0,0,1]", "[-1,0,1]", "[3,0,1]"),
    ),
    ("op.flip", SOME, ("0", "-1", "2", "axis=1")),
    (
        "op.concat",
        (
            "tup(t(2,3), t(4,3))",
            "[t(n,3), t(2,3)]",
            "[t(2,3), t(2,4)]",
            "[t(n,3), t(m,3)]",
            "[t(2,3), u(2)]",
            "[t(2,3), u()]",
            "[t(2,3), t(3)]",
            "tup()",
            "[t(3), t(4)]",
            '[t(3), t(4,dtype="int32")]',
            "t(2,3)",
            "[t()]",
            '[t(3), t(4,dtype="")]',
        ),
        ("", "1", "-1", "2", "None"),
    ),
    (
        "op.stack",
        (
            "[t(2,3), t(2,3)]",
            "[t(n,3), t(n,3)]",
            "[t(n,3), t(m,3)]",
            "[t(2,3), t(2,4)]",
            "[t(2,3), u(2)]",
            "[t()]",
            "tup()",
        ),
        ("", "1", "-1", "2", "3"),
    ),
    (
        "op.split",
        ("t(6,4)", "t(n,4)", "u(2)", "u()", "t(7,4)"),
        ("2", "3", "[2,4]", "[2,4],1", "3,1", "2,-1", "0", "[1,n]", "2,2", "[]", "[4,2]", "[2,9]"),
    ),
    (
        "op.meshgrid",
        (
            "[t(2), t(3)]",
            "[t(n), t(m)]",
            "[t(2,3), t(3)]",
            "[t(), t(3)]",
            "tup()",
            '[t(2), t(3,dtype="int32")]',
            "[u(1), t(3)]",
        ),
        ("", "'xy'", "'ab'"),
    ),
    ("op.repeat", (*SOME, "t()"), ("2", "2,0", "2,-1", "2,2", "0,0", "1")),
    ("op.tile", (*SOME, "t()"), ("2", "(2,3)", "(2,3,4)", "()", "[1,2]")),
    (
        "op.collapse_sum_to",
        ("t(3,2,3)", "t(n,3)", "u(2)"),
        ("(2,3)", "(1,3)", "(3,1)", "(n,3)", "su(2)", "(3,)", "(5,)", "()"),
    ),
    ("op.collapse_sum_like", ("t(3,2,3)", "t(n,3)", "u(2)"), ("t(2,3)", "t(n,1)", "u(2)", "t(5)")),
    (
        "op.take",
        ("t(4,5)", "t(n,5)", "u(2)", "u()", "t(4)"),
        (
            't(3,dtype="int64")',
            't(3,2,dtype="int64"),0',
            't(3,dtype="int64"),-1',
            't(m,dtype="int32"),1',
            'u(1,"int64"),0',
            "t(3),0",
            't(3,dtype="int64"),2',
            't(dtype="int64"),1',
            "p(1),0",
            't(3,dtype="int64"),0,"wrap"',
        ),
    ),
    (
        "op.strided_slice",
        ("t(8,9)", "t(n,9)", "u(2)", "u()"),
        (
            "[0],[1],[4]",
            "[0,1],[1,2],[6,8],[2,3]",
            "[-1],[-3],[-1]",
            "[0],[7],[0],[-2]",
            "[0],[1],[n]",
            "[0],[0],[100]",
            "[0,0],[0,0],[1,1]",
            "[2],[0],[1]",
            "[0],[1],[4],[0]",
            "[0],[1,2],[4]",
            "[0],[0],[3],assume_inbound=True",
            "[0],[1],[n],assume_inbound=True",
            "[1],[-3],[2147483647]",
            "[],[],[]",
            "[0],[-1],[-100],[-1]",
            "[0],[n],[m]",
        ),
    ),
    (
        "op.dynamic_strided_slice",
        ("t(8,9)", "t(n,9)", "u(2)", "u()"),
        (
            't(2,dtype="int64"),t(2,dtype="int64"),t(2,dtype="int64")',
            't(1,dtype="int64"),t(2,dtype="int64"),t(2,dtype="int64")',
            't(2),t(2,dtype="int64"),t(2,dtype="int64")',
        ),
    ),
    (
        "op.gather_elements",
        ("t(4,5)", "t(n,5)", "u(2)"),
        (
            't(3,5,dtype="int64")',
            't(4,2,dtype="int64"),1',
            't(3,dtype="int64")',
            "t(3,5)",
            't(3,5,dtype="int64"),2',
            't(3,5,dtype="int64"),-2',
            'u(2,"int64")',
        ),
    ),
    (
        "op.gather_nd",
        ("t(4,5,6)", "t(n,5,6)", "u(3)", "u()"),
        (
            't(3,2,dtype="int64")',
            't(3,3,dtype="int64")',
            't(3,4,dtype="int64")',
            't(4,2,dtype="int64"),1',
            't(2,dtype="int64")',
            "t(3,2)",
            't(3,2,dtype="int64"),3',
            't(m,2,dtype="int64")',
        ),
    ),
    (
        "op.index_tensor",
        ("t(4,5,6)", "t(n,5,6)", "u(3)"),
        (
            '[t(3,dtype="int64")]',
            '[t(3,dtype="int64"),t(2,1,dtype="int64")]',
            "[t(3)]",
            "tup()",
            '[t(3,dtype="int64"),t(2,dtype="int64")]',
            '[t(1,dtype="int64")]*4',
            '[t(m,dtype="int32")]',
        ),
    ),
    (
        "op.one_hot",
        ('t(3,dtype="int64")', 't(n,4,dtype="int32")', "t(3)", 'u(1,"int64")', 't(dtype="int64")'),
        ("p(1),p(0),5", "p(1.0),p(0.0),5,0", "p(1),p(0.0),5", "p(1),p(0),0", "p(1),p(0),5,3"),
    ),
    (
        "op.scatter_elements",
        ("t(4,5)", "t(n,5)", "u(2)"),
        (
            't(2,5,dtype="int64"),t(2,5)',
            't(2,5,dtype="int64"),t(2,5),1,"add"',
            "t(2,5),t(2,5)",
            't(2,5,dtype="int64"),t(2,5),2',
            't(2,5,dtype="int64"),t(2,5),0,"bad"',
            't(2,5,dtype="int64"),t(2,5,dtype="int32")',
            't(2,dtype="int64"),t(2)',
        ),
    ),
    (
        "op.scatter_nd",
        ("t(4,5)", "t(n,5)", "u(2)"),
        (
            't(3,1,dtype="int64"),t(3,5)',
            't(3,2,dtype="int64"),t(3)',
            't(3,3,dtype="int64"),t(3)',
            't(3,1,dtype="int64"),t(3,4)',
            "t(3,1),t(3,5)",
            't(3,1,dtype="int64"),t(3,5),"add"',
            't(3,1,dtype="int64"),t(3,5),"bad"',
        ),
    ),
    (
        "op.index_put",
        ("t(4,5)", "t(n,5)", "u(2)"),
        (
            'tup(t(3,dtype="int64"),t(3,dtype="int64")),t(3)',
            'tup(t(3,dtype="int64")),t(3,5),True',
            "tup(t(3)),t(3,5)",
            'tup(t(3,dtype="int64"),t(3,dtype="int64"),t(3,dtype="int64")),t(3)',
        ),
    ),
    (
        "op.slice_scatter",
        ("t(8,9)", "t(n,9)", "u(2)"),
        (
            "t(3,9),p(1),p(4),p(1)",
            "t(8,2),0,4,2,axis=1",
            "t(3,9),p(1),p(4),p(1),axis=2",
            "t(3),0,3,1",
        ),
    ),
    (
        "op.matmul",
        (
            "t(2,3), t(3,4)",
            "t(n,3), t(3,m)",
            "t(3), t(3)",
            "t(2,3), t(3)",
            "t(3), t(3,4)",
            "t(5,2,3), t(3,4)",
            "t(5,2,3), t(5,3,4)",
            "t(5,2,3), t(6,3,4)",
            "t(5,1,2,3), t(6,3,4)",
            "t(2,3), t(4,4)",
            "t(2,n), t(m,4)",
            "t(), t(3)",
            "u(2), t(3,4)",
            "u(), t(3,4)",
            "u(2), u(3)",
            't(2,3), t(3,4,dtype="float16")',
            "t(n,2,3), t(m,3,4)",
            't(2,3,dtype="int8"), t(3,4,dtype="int8")',
        ),
        ("", '"float16"', 'out_dtype="int32"'),
    ),
    (
        "op.outer",
        ("t(2), t(3)", "t(n), t(m)", "t(2,3), t(3)", 't(2), t(3,dtype="int32")', "u(1), t(3)"),
        ("",),
    ),
    (
        "op.einsum",
        ("[t(2,3), t(3,4)]", "[t(n,3), t(3,m)]", "[t(2,3), t(4,4)]", "[t(2,3)]"),
        ("'ij,jk->ik'", "'ij,jk'", "'ij->ji'", "'ij,jk->iz'", "'ii'", "'ij->'", "'...j,jk->...k'"),
    ),
    (
        "op.where",
        (
            't(2,3,dtype="bool"), t(2,3), t(2,3)',
            't(3,dtype="bool"), t(2,1), t()',
            "t(2,3), t(2,3), t(2,3)",
            't(2,3,dtype="bool"), t(2,3), t(2,3,dtype="int32")',
            't(n,dtype="bool"), t(n), t(1)',
            'u(2,"bool"), t(2,3), t()',
            't(2,dtype="bool"), t(3), t(3)',
        ),
        ("",),
    ),
    (
        "op.ewise_fma",
        (
            "t(2,3), t(2,3), t(2,3)",
            "t(2,3), t(3), t(2,3)",
            "t(n), t(n), t(n)",
            't(2), t(2), t(2,dtype="int32")',
            "u(2), t(2,3), t(2,3)",
        ),
        ("",),
    ),
    ("op.zeros", ("(2,3)", "(n,3)", "s(2,n)", "su(2)", "()"), ('"float32"', '"int64"')),
    ("op.ones", ("(2,3)", "(n,)"), ('"float16"', '"bool"')),
    (
        "op.full",
        ("(2,3)", "(n,)", "su(2)"),
        ("c(1.0,'float32')", "c(1,'int32'),'float32'", "t(2)", "t()", "t(),'int8'"),
    ),
    *(
        (f"op.{k}", (*SOME, 't(2,dtype="int32")'), ("", '"float16"'))
        for k in ("zeros_like", "ones_like")
    ),
    ("op.full_like", SOME, ("c(1.0,'float32')", "c(1,'int32'),'int64'", "t(2)")),
    (
        "op.arange",
        ("5", "1,7", "1,7,2", "0,n", "0,n,2", "0.0,1.0,0.1", "7,1,-2", "n", "5,1", "0,10,3"),
        ("", 'dtype="float32"', 'dtype="int32"'),
    ),
    ("op.eye", ("3", "3,4", "n", "n,m", "3,None,1"), ("", 'dtype="int32"')),
    ("op.eye_like", ("t(2,3)", "t(2)", "u(2)"), ("", "1", "0,'int32'")),
    (
        "op.hamming_window",
        ("p(10),p(True),p(0.54),p(0.46)", "10,1,0.54,0.46"),
        ("'float32'", "'float64'", "'int32'"),
    ),
    *((f"op.{k}", (*SOME, "t()", "t(3)"), ("", "1", "p(-1)")) for k in ("tril", "triu")),
    (
        "op.unique",
        (*SOME, "t()"),
        (
            "",
            "return_index=True",
            "return_inverse=True,return_counts=True",
            "axis=0",
            "axis=2",
            "sorted=False,axis=-1",
        ),
    ),
    ("op.nonzero", (*SOME, "t()", 't(2,dtype="bool")', "s(2)"), ("",)),
    ("op.shape_of", (*ANY, "tup(t(2))"), ("",)),
    ("op.size", (*SOME, "s(2)"), ("",)),
    ("op.shape_to_tensor", ("s(2,3)", "s(n)", "su(2)", "su()", "t(2)"), ("",)),
    (
        "op.tensor_to_shape",
        (
            't(3,dtype="int64")',
            "t(3)",
            't(2,3,dtype="int64")',
            'u(1,"int64")',
            't(n,dtype="int64")',
        ),
        ("",),
    ),
    (
        "op.multinomial_from_uniform",
        (
            't(3,5), t(6,1), t(6,1,dtype="int64")',
            't(n,5), t(m,1), t(m,1,dtype="int64")',
            "t(3,5), t(6,1), t(6,1)",
            't(3), t(6,1), t(6,1,dtype="int64")',
        ),
        ("", '"int32"'),
    ),
    (
        "op.quantize",
        (
            "t(2,3), t(3), t(3,dtype='int8')",
            "t(2,3), t(), t(dtype='int8')",
            "t(2,3), t(4), t(4,dtype='int8')",
            "t(2,n), t(n), t(n,dtype='int8')",
            "t(2,3,dtype='int32'), t(3), t(3,dtype='int8')",
        ),
        ("", "0", "-1,'uint8'", "2", "-1,'int16'"),
    ),
    (
        "op.dequantize",
        (
            "t(2,3,dtype='int8'), t(3), t(3,dtype='int8')",
            "t(2,3,dtype='int8'), t(), t(dtype='int8')",
            "t(2,3), t(3), t(3,dtype='int8')",
            "t(2,3,dtype='uint8'), t(3), t(3,dtype='int32')",
        ),
        ("", "0", "-1,'float16'", "2", "-1,'int32'"),
    ),
    ("op.builtin.stop_lift_params", SOME, ("",)),
    (
        "op.memory.view",
        ("t(4,6)", "t(n,6)", "u(2)"),
        ("", "(24,)", "(2,3,4)", "(25,)", "None,dt('int32')", "(2,),None,p(4)"),
    ),
    ("op.ccl.allreduce", SOME, ("", "'max'", "'bad'")),
    ("op.ccl.allgather", (*SOME, "t()"), ("2", "1")),
    ("op.ccl.broadcast_from_worker0", SOME, ("",)),
    ("op.ccl.scatter_from_worker0", ("t(4,6)", "t(n,6)", "u(2)"), ("2", "4", "3", "2,1", "2,2")),
    ("op.grad.no_grad", (*SOME, "tup(t(2))"), ("",)),
    ("op.grad.start_checkpoint", ("t(2)", "u()"), ("",)),
    (
        "op.grad.nll_loss_backward",
        ("t(), t(2,3), t(2,dtype='int64')", "t(2), t(2,3), t(2,dtype='int64')"),
        ("", "reduction='none'"),
    ),
    ("op.grad.max_pool2d_backward", ("t(1,2,2,2), t(1,2,4,4)",), ("(2,2),(2,2)",)),
    ("op.grad.take_backward", ("t(3,5), t(4,5), t(3,dtype='int64')",), ("0",)),
    ("op.distributed.redistribute_replica_to_shard", ("t(4,6)", "t(n,6)"), ("2,0", "4,1", "2,1")),
    (
        "op.image.resize2d",
        ("t(1,3,8,8)", "t(n,3,8,8)", "u(4)", "t(1,3,8)", "t(1,8,8,3)"),
        (
            "(4,5)",
            "4",
            "(4,5),layout='NHWC'",
            "(h,5)",
            "(4,5,6)",
            "(4,5),method='cubic'",
            "(4,5),out_dtype='float16'",
            "s(4,5)",
            "su(2)",
        ),
    ),
    ("op.image.affine_grid", ("t(2,2,3)", "t(n,2,3)", "u(3)", "t(2,3)"), ("(4,5)", "4", "(h,5)")),
    (
        "op.vision.roi_align",
        ("t(1,3,8,8), t(5,5)", "t(n,3,8,8), t(m,5)", "u(4), t(5,5)", "t(1,3,8,8), t(5,4)"),
        ("(2,3),1.0", "2,0.5", "(2,3),1.0,layout='NHWC'", "(2,3),1.0,mode='bad'"),
    ),
    (
        "op.vision.roi_pool",
        ("t(1,3,8,8), t(5,5)", "t(n,3,8,8), t(m,5)", "u(4), t(5,5)"),
        ("(2,3),1.0", "(2,3),1.0,'NHWC'"),
    ),
    (
        "op.vision.get_valid_counts",
        ("t(1,5,6)", "t(n,m,6)", "u(3)", "t(5,6)"),
        ("", "0.5,-1,0", "0.5,0,6"),
    ),
    (
        "op.vision.non_max_suppression",
        (
            "t(1,5,6), t(1,dtype='int32'), t(1,5,dtype='int32')",
            "t(n,m,6), t(n,dtype='int32'), t(n,m,dtype='int32')",
            "u(3), t(1,dtype='int32'), t(1,5,dtype='int32')",
        ),
        (
            "",
            "return_indices=False",
            "soft_nms_sigma=0.5",
            "soft_nms_sigma=0.5,return_indices=False",
        ),
    ),
    (
        "op.vision.multibox_transform_loc",
        (
            "t(1,3,5), t(1,20), t(1,5,4)",
            "t(n,3,m), t(n,m*4), t(1,m,4)",
            "u(3), t(1,20), t(1,5,4)",
            "t(1,3,5), t(1,18), t(1,5,4)",
        ),
        ("", "True,0.1"),
    ),
    (
        "op.vision.all_class_non_max_suppression",
        ("t(2,5,4), t(2,3,5)", "t(n,5,4), t(n,3,5)", "t(2,5,4), u(3)"),
        (
            "c(2,'int64'),c(0.5,'float32'),c(0.1,'float32')",
            "c(2,'int64'),c(0.5,'float32'),c(0.1,'float32'),'tensorflow'",
        ),
    ),
    *(
        (f"op.nn.{k}", (*SOME, 't(2,dtype="int32")', "tup(t(2))"), ("",))
        for k in ["relu", "relu6", "gelu", "gelu_tanh", "selu", "silu"]
    ),
    *(
        (f"op.nn.{k}", (*SOME, "t()", 't(2,dtype="int32")'), ("", "0", "-1", "2"))
        for k in ("softmax", "log_softmax")
    ),
    ("op.nn.leakyrelu", (*SOME, 't(2,dtype="int32")'), ("", "0.2")),
    ("op.nn.softplus", SOME, ("", "2.0,10.0")),
    (
        "op.nn.prelu",
        (
            "t(2,3), t(3)",
            "t(2,3), t(1)",
            "t(n,m), t(m)",
            "t(2,3), t(4)",
            "u(2), t(3)",
            "t(2,3), t(2,3)",
        ),
        ("", "0", "2"),
    ),
    ("op.nn.dropout", SOME, ("", "0.3")),
    ("op.nn.batch_flatten", ("t(2,3,4)", "t(n,3,4)", "u(3)", "t(2)", "t()"), ("",)),
    (
        "op.nn.pixel_shuffle",
        ("t(1,8,3,4)", "t(n,8,3,4)", "u(4)", "t(1,6,3,4)", "t(8,3,4)", "t(3,4)"),
        ("2", "0"),
    ),
    (
        "op.nn.pad",
        ("t(2,3)", "t(n,3)", "u(2)"),
        ("[1,1,2,2]", "((1,1),(2,2))", "[1,1]", "[0,1,2,0],'reflect'", "[1,1,2,2],'bad'"),
    ),
    (
        "op.nn.cross_entropy_with_logits",
        ("t(2,3), t(2,3)", "t(n,3), t(n,3)", "t(2,3), t(2,4)", "t(3), t(3)", "u(2), t(2,3)"),
        ("",),
    ),
    (
        "op.nn.nll_loss",
        (
            "t(2,3), t(2,dtype='int64'), t(3)",
            "t(n,3), t(n,dtype='int64'), t(3)",
            "t(3), t(dtype='int64'), t(3)",
            "t(2,3,4), t(2,4,dtype='int64'), t(3)",
            "t(2,3), t(4,dtype='int64'), t(3)",
            "t(2,3), t(2), t(3)",
            "t(2,3), t(2,dtype='int64'), t(4)",
            "u(2), t(2,dtype='int64'), t(3)",
        ),
        ("", "'none'", "'sum'", "'bad'"),
    ),
    (
        "op.nn.attention",
        (
            "t(2,8,4,16), t(2,8,4,16), t(2,8,4,16)",
            "t(n,m,4,16), t(n,h,4,16), t(n,h,4,16)",
            "t(2,8,4,16), t(2,9,4,16), t(2,9,4,32)",
            "t(2,8,4,16), t(2,8,4,15), t(2,8,4,16)",
            "t(2,8,4), t(2,8,4), t(2,8,4)",
        ),
        ("", "t(2,4,8,8)", "None,causal_mask='TopLeft'"),
    ),
    (
        "op.nn.layer_norm",
        (
            "t(2,3,4), t(4), t(4)",
            "t(n,3,4), t(4), t(4)",
            "t(2,3,4), t(3,4), t(3,4)",
            "t(2,3,4), t(5), t(5)",
            "u(3), t(4), t(4)",
            "t(2,3,4), u(1), u(1)",
        ),
        ("axes=[-1]", "axes=[1,2]", "axes=[3]", "axes=[]", "axes=-1"),
    ),
    (
        "op.nn.group_norm",
        (
            "t(2,8,3,3), t(8), t(8)",
            "t(n,8,h,m), t(8), t(8)",
            "t(2,8,3,3), t(7), t(7)",
            "u(4), t(8), t(8)",
        ),
        ("4,1,[2,3]", "3,1,[2,3]", "4,1,[1,2]", "4,4,[2,3]"),
    ),
    (
        "op.nn.instance_norm",
        ("t(2,8,3,3), t(8), t(8)", "t(n,8,h,m), t(8), t(8)", "t(2,8,3,3), t(7), t(7)"),
        ("1,[2,3]", "1,[1,2]"),
    ),
    (
        "op.nn.rms_norm",
        ("t(2,3,4), t(4)", "t(n,3,4), t(4)", "t(2,3,4), t(5)", "u(3), t(4)"),
        ("axes=[-1]", "axes=[1,2]", "axes=-1", "axes=[3]"),
    ),
    (
        "op.nn.batch_norm",
        (
            "t(2,8,3,3), t(8), t(8), t(8), t(8)",
            "t(n,8,h,m), t(8), t(8), t(8), t(8)",
            "t(2,8,3,3), t(7), t(7), t(7), t(7)",
            "u(4), t(8), t(8), t(8), t(8)",
        ),
        ("1", "-1", "axis=4"),
    ),
    (
        "op.nn.adaptive_avg_pool2d",
        ("t(1,3,8,8)", "t(n,3,h,m)", "u(4)", "t(1,3,8)"),
        ("", "2", "(2,3)", "(2,3),'NHWC'", "(2,3,4)"),
    ),
    ("op.nn.adaptive_avg_pool1d", ("t(1,3,8)", "t(n,3,h)", "t(1,3,8,8)"), ("", "2", "(2,)")),
    ("op.nn.adaptive_avg_pool3d", ("t(1,3,8,8,8)", "u(5)"), ("", "2", "(2,3,4)")),
    *(
        (
            f"op.nn.{k}_pool1d",
            ("t(1,3,8)", "t(n,3,h)"),
            ("2,2", "3,2,1", "2,ceil_mode=True", "(2,2)"),
        )
        for k in ("max", "avg")
    ),
    *(
        (f"op.nn.{k}_pool3d", ("t(1,3,8,8,8)",), ("2,2", "(2,3,4)", "2,1,(1,1,1)"))
        for k in ("max", "avg")
    ),
)


def calls() -> Iterator[str]:
    """Every call of the tables once."""
    seen: set[str] = set()
    for name, operands, attrs in (*TABLE, *ODD):
        for x, a in product(operands, attrs):
            text = f"{name}({x}{', ' if a else ''}{a})"
            if text not in seen:
                seen.add(text)
                yield text
