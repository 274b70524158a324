"""Control flow and shapes that depend on data, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops import associative_scan, scan, while_loop  # noqa: E402
from torch._higher_order_ops import map as torch_map  # noqa: E402

from relax2xla import VirtualMachine, build  # noqa: E402
from relax2xla.errors import AssertError, CallError, OpNotImplemented  # noqa: E402
from relax2xla.importers.torch import from_exported_program  # noqa: E402
from tests.importers.torch.helpers import check, imported, not_traced_anew, run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


def test_cond() -> None:
    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (x * 2, x.sum()), lambda x: (x - 1, x.max()), (x,))

    check(f, [X], others=[[-X], [X + 9]])


def test_nested_cond_on_a_size() -> None:
    def inner(x: Any) -> Any:
        return torch.cond(x[0, 0] > 0, torch.sin, torch.cos, (x,))

    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))

    check(f, [X], others=[[-X], [X + 9], [9 - X]])


def test_cond_on_a_symbolic_size() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.shape[0] > 4, torch.sin, torch.cos, (x,))

    rows = torch.export.Dim("rows")
    mod = from_exported_program(Model(), (X,), dynamic_shapes=({0: rows},))
    main = VirtualMachine(build(mod))["main"]
    for n in (3, 4, 5, 7):
        x = torch.randn(n, 3)
        (got,) = main(x)
        torch.testing.assert_close(torch.from_dlpack(got), Model()(x))


def test_while_loop() -> None:
    def f(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, y * 2 + x

        return while_loop(lambda i, y: i < 4, body, (torch.tensor(0), x))

    check(f, [X])


def test_scan() -> None:
    def f(x: Any) -> Any:
        start = torch.zeros(3)
        return scan(lambda c, r: (c + r, c * r), start, x, dim=0), scan(
            lambda c, r: (c + r, c * r), start, x, dim=0, reverse=True
        )

    check(f, [X])


def test_map_and_associative_scan() -> None:
    def f(x: Any) -> Any:
        rows = torch_map(lambda r, w: (r.sum() * w, r + 1), x, x[0] * 2)
        return rows, associative_scan(torch.add, x, dim=0, combine_mode="generic")

    check(f, [X])


def test_vmap() -> None:
    check(lambda x: torch.vmap(lambda r: r * r.sum())(x), [X])


def test_autocast_and_no_grad() -> None:
    def f(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
        with torch.no_grad():
            z = y * 2
        return y, z, x + z.float().sum()

    check(f, [X], scale=50)


def test_sizes_from_data() -> None:
    def f(x: Any, m: Any) -> Any:
        n = m.sum().item()
        torch._check(n >= 0)
        chosen = x[x > 0]
        rows = x[m > 1]
        return (
            torch.nonzero(x > 0),
            chosen * 2,
            torch.masked_select(x, m[:, None] > 1),
            rows.sum(0),
            torch.arange(n),
            x * n,
            m.float().mean().item() * x,
        )

    m = torch.tensor([1, 0, 2, 3, 0])
    check(f, [X, m], others=[[-X, m + 1], [X.abs(), m * 0]], scale=5)


def test_places_and_bounds_from_data() -> None:
    """They may be negative, and beyond the ends."""

    def f(x: Any, i: Any, j: Any) -> Any:
        k = i.item()
        parts = (x[k:], x[:k], x[k::2], x[-2:k])
        return x[i], x[i, j], x[:, j], [p.sum(0) for p in parts]

    def at(i: int, j: int) -> list[Any]:
        return [X, torch.tensor(i), torch.tensor(j)]

    check(f, at(-1, 1), others=[at(2, -2), at(-4, 0), at(0, -1)], scale=5)
    check(
        lambda x, i: [x[i.item() :].sum(0), x[: i.item()].sum(0)],
        [X, torch.tensor(9)],
        others=[[X, torch.tensor(-9)]],
        scale=5,
    )


def test_parts_of_a_known_length_at_a_place_from_data() -> None:
    """What torch then asserts are conditions joined by `and` and `or`."""

    def f(x: Any, i: Any) -> Any:
        return x.narrow(0, i.item(), 2) * 2

    def at(i: int) -> list[Any]:
        return [X, torch.tensor(i)]

    mod = check(f, at(1), others=[at(0), at(3), at(-2), at(-5)])
    with pytest.raises(CallError, match="lies outside of axis 0, which has 5 elements"):
        run(mod, at(4))
    with pytest.raises(AssertError, match="u0 >= -5"):
        run(mod, at(-6))


def test_a_bound_from_data_beyond_the_end_is_an_error_of_the_call() -> None:
    def f(x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return x[:k] * 2

    mod = check(f, [X, torch.tensor(2)], others=[[X, torch.tensor(5)]])
    with pytest.raises(CallError, match="0:9 lies outside of axis 0, which has 5 elements"):
        run(mod, [X, torch.tensor(9)])


def test_as_many_times_as_data_say() -> None:
    check(
        lambda x, r: (x.repeat_interleave(r, 0), x.repeat_interleave(r[:1])),
        [X, torch.tensor([2, 0, 3, 1, 0])],
        [{0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}],
        others=[[X[:3], torch.tensor([0, 4, 1])]],
    )
    check(lambda x, r: x.repeat_interleave(r, 0, output_size=6), [X, torch.tensor([2, 0, 3, 1, 0])])


@not_traced_anew()
def test_torch_traces_nothing_anew_for_sizes_from_data() -> None:
    """A decomposition that makes such a size cannot stand in the place of one node."""

    check(
        lambda x, r: (
            torch.argwhere(x > 0),
            torch.where(x > 0),
            torch.where(x.sum() > 0),
            x[torch.where(x > 0)],
            x.T.repeat_interleave(r, -1),
            x.repeat_interleave(r[0]),
            x.sum().repeat_interleave(r[:1]),
        ),
        [X, torch.tensor([2, 0, 3, 1, 0])],
        others=[[-X, torch.tensor([0, 4, 1, 0, 0])]],
        scale=5,
    )


def test_what_assertions_leave_one_value_for_is_looked_at() -> None:
    def f(x: Any) -> Any:
        torch._check(torch._is_all_true(x > 0).item())
        n = x.sum().to(torch.int64).item()
        torch._check(n == 6)
        return x * n

    x = torch.tensor([1.0, 2.0, 3.0])
    mod = check(f, [x])
    with pytest.raises(AssertError, match="is not 6, as torch"):
        run(mod, [x + 1])
    with pytest.raises(AssertError, match="is not True"):
        run(mod, [x - torch.tensor([3.0, 0, -3])])


def test_bounds_of_numbers_from_data_are_looked_at() -> None:
    def f(x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 2)
        torch._check(k <= 4)
        return x[:k] * 2, torch.zeros(k)

    mod = check(f, [X, torch.tensor(3)], others=[[X, torch.tensor(2)], [X, torch.tensor(4)]])
    for wrong, message in ((1, ">= 2"), (5, "<= 4")):
        with pytest.raises(AssertError, match=message):
            run(mod, [X, torch.tensor(wrong)])


def test_symbolic_floats() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return x / torch.sym_sqrt(n), x * (1 / n), torch.arange(n) * (n**0.5)

    n = torch.export.Dim("n", min=2, max=40)
    check(f, [X], [{0: n}], others=[[torch.randn(7, 3)]])


def test_assertions_on_data_are_looked_at_when_the_program_runs() -> None:
    def one_hot(x: Any, kinds: Any) -> Any:
        torch._assert_async((x > 0).all(), "x is {not} positive")
        torch._assert_async(x[0])
        return 2 * x, torch.nn.functional.one_hot(kinds, 4)

    x, kinds = torch.tensor([1.0, 2.0]), torch.tensor([1, 3])
    mod = check(one_hot, [x, kinds])
    with pytest.raises(AssertError, match=r"x is \{not\} positive"):
        run(mod, [-x, kinds])
    # torch.compile has those that torch's decomposition of one_hot makes, too.
    call = torch.compile(one_hot, backend="relax2xla", options={"fallback": False})
    torch.testing.assert_close(call(x, kinds), one_hot(x, kinds))
    with pytest.raises(AssertError, match="smaller than num_classes"):
        call(x, kinds + 1)


def test_assertions_on_data_in_branches_are_refused() -> None:
    def branch(x: Any) -> Any:
        torch._assert_async(x.any(), "no")
        return x + 1

    def chosen(x: Any) -> Any:
        return torch.cond(x.sum() > 0, branch, lambda x: x - 1, (x,))

    with pytest.raises(OpNotImplemented, match="in a branch or a loop"):
        imported(chosen, [torch.ones(2)])
