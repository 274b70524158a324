"""What tensors and axes of topi are called: as in TVM, for programs that look for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relax2xla import te, tir, topi

A, B = te.placeholder((4, 8), name="A"), te.placeholder((8,), name="B")
X = te.placeholder((1, 3, 8, 8), name="X")
W = te.placeholder((5, 3, 3, 3), name="W")
BLOCKS: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: topi.exp(A), ["compute"]),
    (lambda: topi.add(A, B), ["T_add"]),
    (lambda: topi.sum(A, 1), ["A_red"]),
    (lambda: topi.argmax(A, 1), ["A_red_temp", "A_red"]),
    (lambda: topi.strided_slice(A, [0], [2]), ["T_strided_slice"]),
    (lambda: topi.split(A, 2, 1), ["T_split_sections", "T_split_sections_1"]),
    (
        lambda: topi.nn.softmax(A),
        ["T_softmax_maxelem", "T_softmax_exp", "T_softmax_expsum", "T_softmax_norm"],
    ),
    (
        lambda: topi.nn.fast_softmax(A),
        [
            *("T_softmax_maxelem", "T_softmax_delta", "T_fast_exp", "T_softmax_expsum"),
            "T_softmax_norm",
        ],
    ),
    (lambda: topi.fast_tanh(A), ["T_fast_tanh"]),
    (lambda: topi.nn.lrn(X, 3), ["pad_data", "tensor", "tensor_1", "T_divide"]),
    (lambda: topi.nn.log_softmax(A), ["T_softmax_maxelem", "compute", "compute_1"]),
    (
        lambda: topi.nn.layer_norm(A, B, B, [1]),
        ["A_sum", "A_mean", "A_var_sum", "T_layer_norm"],
    ),
    (lambda: topi.nn.dense(A, A), ["T_matmul_NT"]),
    (lambda: topi.nn.conv2d(X, W, 1, 1, 1), ["pad_temp", "conv2d_nchw"]),
    (lambda: topi.nn.pool2d(X, 2, 2, 1, (0, 0, 0, 0), "avg"), ["pool_sum", "pool_avg"]),
    (lambda: topi.image.resize2d(X, (), (4, 4)), ["resize"]),
]


def blocks_of(func: tir.PrimFunc) -> list[str]:
    names: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, tir.Block) and node.name_hint != "root":
            names.append(node.name_hint)

    tir.stmt_functor.post_order_visit(func.body, visit)
    return names


@pytest.mark.parametrize(("make", "names"), BLOCKS, ids=lambda v: v[-1] if type(v) is list else "")
def test_blocks(make: Callable[[], Any], names: list[str]) -> None:
    made = make()
    results = made if isinstance(made, list) else [made]
    assert blocks_of(te.create_prim_func([*placeholders(results), *results])) == names


def placeholders(results: list[te.Tensor]) -> list[te.Tensor]:
    found: dict[te.Tensor, None] = {}
    stack = list(results)
    while stack:
        t = stack.pop()
        if isinstance(t.op, te.PlaceholderOp):
            found[t] = None
        stack += t.op.inputs
    return list(found)


def test_a_product_in_tvms_form() -> None:
    other = te.placeholder((5, 8), name="B")
    text = te.create_prim_func([A, other, topi.matmul(A, other, False, True)]).script()
    for line in (
        "for ax0, ax1, k in T.grid(4, 5, 8):",
        'with T.block("T_matmul"):',
        'v_ax0, v_ax1, v_k = T.axis.remap("SSR", [ax0, ax1, k])',
        "T_matmul[v_ax0, v_ax1] + A[v_ax0, v_k] * B[v_ax1, v_k]",
    ):
        assert line in text
