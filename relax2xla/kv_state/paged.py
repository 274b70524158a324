"""PagedKVCache: keys and values of attention for many sequences, in pages that they share."""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import RunError, TVMError
from relax2xla.kv_state import native, programs
from relax2xla.kv_state.forms import NO_TREES, PagedForm
from relax2xla.kv_state.guards import Exclusive, array, exclusive, finite, whole, wholes
from relax2xla.kv_state.rope import Rotation
from relax2xla.kv_state.rows import Bounds, Heads, Sizes
from relax2xla.kv_state.sequences import Ints, Sequences, depths
from relax2xla.nd import array as put
from relax2xla.nd import empty
from relax2xla.runtime.device import Device
from relax2xla.runtime.device import device as device_named
from relax2xla.vm.call.objects import DeviceObject, Loan, power_of_two, roomy, rows_to

Array = npt.NDArray[Any]
# Tables with a row for each token.
_TOKENS: Final = ("positions", "slots", "back")
_UNBOUND: Final = Bounds()
# Places in a pool: indices are of 32 bits.
_MOST: Final = 2**31 - 1
_DTYPES: Final = ("float16", "float32", "bfloat16")


class AttnKind(enum.IntEnum):
    """The kind of attention of a layer: of many heads, or latent."""

    MHA = 0
    MLA = 1


class RopeMode(enum.IntEnum):
    """When keys are turned: never, before they are kept, or as they are read."""

    NONE = 0
    NORMAL = 1
    INLINE = 2


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """What a cache has room for.

    sequences: in one step; tokens: of all sequences; chunk: tokens of one step; page: tokens of a
    page; sliding: whether sequences may slide.
    """

    sequences: int
    tokens: int
    chunk: int
    page: int
    sliding: bool = False

    def __post_init__(self) -> None:
        numbers = (self.sequences, self.tokens, self.chunk, self.page)
        if any(isinstance(n, bool) or not hasattr(n, "__index__") or n < 1 for n in numbers):
            raise TVMError(f"a cache's sizes must be positive whole numbers; got {self}")
        if self.tokens + self.chunk + self.page > _MOST:
            raise TVMError(
                f"a cache of {self.tokens} tokens in pages of {self.page}: places are counted in "
                f"32 bits, and there are at most {_MOST} of them; make it smaller"
            )


@dataclass(slots=True)
class _Step:
    """One begin_forward: what its calls of attention need, beside their arrays.

    ``tables``: numpy arrays by the names of ``forms``; of those of TOKENS as many rows as there are
    tokens. ``placed``: those that are on the device already, as the host's programs take them.
    """

    tokens: int
    at: Sizes
    tables: dict[str, Array]
    placed: dict[str, Any] = field(default_factory=dict[str, Any])

    def given(self, name: str, shape: tuple[int, ...], trash: int) -> Array:
        """A table of that shape; tokens beyond those of the step are written to ``trash``."""
        found = self.tables[name]
        if name not in _TOKENS:
            return found
        if shape[0] < self.tokens:
            raise RunError(f"the step has {self.tokens} tokens; the program was given {shape[0]}")
        return rows_to(found, shape[0], trash if name == "slots" else 0)


class PagedKVCache(Exclusive, DeviceObject):
    """Keys and values of many sequences, with attention over them.

    A step begins with ``begin_forward``, which says what tokens there are; then each layer attends,
    and ``end_forward`` ends it. kinds: of each layer; heads: of queries, and of keys and values;
    head_dims: of queries and keys (MLA: of the latent vector with its rope part), and of values.
    rope: the rotation, None for none. mode INLINE keeps keys as they came, and so does a cache that
    slides, as positions change. dtype: float16, float32 or bfloat16; scores are float32.

    One thread at a time. A call that raises RunError leaves the cache as it was.
    """

    def __init__(
        self,
        sizes: CacheSizes,
        kinds: Sequence[AttnKind],
        heads: tuple[int, int],
        head_dims: tuple[int, int],
        rope: Rotation | None = None,
        mode: RopeMode = RopeMode.NONE,
        dtype: str = "float32",
        device: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(sizes, CacheSizes):  # as a caller without types may have it
            raise TVMError(f"a cache's sizes are a CacheSizes; got {sizes!r:.100}")
        try:
            kinds, mode = [AttnKind(k) for k in kinds], RopeMode(mode)
        except (TypeError, ValueError) as e:
            raise TVMError(f"kinds of layers are AttnKinds, and mode a RopeMode: {e}") from None
        if not kinds:
            raise TVMError("a cache is of one layer at least; got no kinds of layers")
        if dtype not in _DTYPES:
            raise TVMError(f"a cache is of {', '.join(_DTYPES)}; got {dtype}")
        heads, head_dims = _pair(heads, "heads"), _pair(head_dims, "head_dims")
        if heads[0] % heads[1]:
            raise TVMError(
                f"{heads[0]} heads of queries and {heads[1]} of keys: the first must be a "
                "multiple of the second"
            )
        if rope is not None and not isinstance(rope, Rotation):
            raise TVMError(f"rope is a Rotation, or None; got {rope!r:.100}")
        device = device_named(device) if isinstance(device, str) else device
        if device is not None and not isinstance(device, Device):
            raise TVMError(f"device is a Device or the name of one; got {device!r:.100}")
        if mode is not RopeMode.NONE and (rope is None or rope.size > head_dims[0]):
            raise TVMError(f"rope of {rope and rope.size} features in heads of {head_dims[0]}")
        if AttnKind.MHA in kinds and head_dims[0] != head_dims[1]:
            raise TVMError(f"keys and values of MHA must be of one size; got {head_dims}")
        self.sizes = sizes
        self.kinds = tuple(kinds)
        self.mode = RopeMode.INLINE if sizes.sliding and mode is RopeMode.NORMAL else mode
        self.rope = rope if mode is not RopeMode.NONE else None
        self.dtype = dtype
        self.device = device
        pages = -(-sizes.tokens // sizes.page) + 1 + (2 * sizes.sequences if sizes.sliding else 0)
        self._sequences = Sequences(pages, sizes.page)
        # The row that padding is written to, and the one that is read for it.
        self._trash = pages * sizes.page
        self._heads = Heads(*heads, *head_dims, dtype, self._trash + 2)
        self._pools = self._fresh()
        self._step: _Step | None = None

    def __repr__(self) -> str:
        return (
            f"<PagedKVCache of {len(self.kinds)} layers, {self.dtype}: {self.total_length} of "
            f"{self.sizes.tokens} tokens, {self.free_pages} pages free>"
        )

    def _fresh(self) -> list[Any]:
        """Pools of zeros."""
        latent = (self._heads.slots, self._heads.size)
        return [
            empty(latent if kind is AttnKind.MLA else self._heads.pool, self.dtype, self.device)
            for kind in self.kinds
        ]

    # -- sequences

    @exclusive
    def clear(self) -> None:
        """Forget all sequences."""
        self._sequences.clear()
        self._step = None

    @exclusive
    def add_sequence(self, number: int) -> None:
        """A new sequence; RunError for a number that is there."""
        with self._between_steps() as sequences:
            sequences.add(whole(number, "a sequence's number"))

    @exclusive
    def remove_sequence(self, number: int) -> None:
        """Forget one; RunError where there is none."""
        with self._between_steps() as sequences:
            sequences.remove(whole(number, "a sequence's number"))

    @exclusive
    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """A new sequence that begins with the first ``position`` tokens of another; -1: all."""
        old, new = wholes((parent, child), "sequences' numbers")
        with self._between_steps() as sequences:
            sequences.fork(old, new, whole(position, "a position"))

    @exclusive
    def popn(self, number: int, count: int) -> None:
        """Forget the last ``count`` tokens of a sequence."""
        with self._between_steps() as sequences:
            sequences.popn(whole(number, "a sequence's number"), whole(count, "a count"))

    @exclusive
    def enable_sliding_window(self, number: int, window: int, sink: int) -> None:
        """Keep the first ``sink`` and the last ``window - sink`` tokens after each step."""
        if not self.sizes.sliding:
            raise RunError("this cache was made without support of sliding windows")
        kept, first = wholes((window, sink), "a window and its sink")
        with self._between_steps() as sequences:
            sequences.slide(whole(number, "a sequence's number"), kept, first)

    @exclusive
    def commit_token_tree(self, numbers: Sequence[int], leaves: Sequence[int]) -> None:
        """Of the trees of the last step keep the way from a root to each leaf; -1: nothing."""
        with self._between_steps() as sequences:
            sequences.commit(wholes(numbers, "sequences' numbers"), wholes(leaves, "leaves"))

    @property
    def empty(self) -> bool:
        """Whether there is no sequence."""
        return self._sequences.empty

    @property
    def free_pages(self) -> int:
        """The number of pages that nobody uses."""
        return self._sequences.free_pages

    @property
    def total_length(self) -> int:
        """The lengths of all sequences together."""
        return self._sequences.tokens

    # -- steps

    @exclusive
    def begin_forward(
        self,
        numbers: Sequence[int],
        lengths: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> None:
        """Begin a step that adds tokens to sequences, in the order of the tokens in its arrays.

        parents: of all tokens, one sequence after the other, -1 for roots: token trees.
        """
        ids, counts = wholes(numbers, "sequences' numbers"), wholes(lengths, "lengths")
        if len(ids) != len(counts) or not ids:
            raise RunError(f"begin_forward: {len(counts)} lengths for the sequences {ids}")
        if len(set(ids)) != len(ids):
            raise RunError(f"begin_forward: the sequences {ids}; each comes once in a step")
        if min(counts) < 1:
            raise RunError(f"begin_forward: each sequence gets tokens; got the lengths {counts}")
        if len(ids) > self.sizes.sequences or sum(counts) > self.sizes.chunk:
            raise RunError(
                f"a step of {len(ids)} sequences and {sum(counts)} tokens; this cache takes "
                f"{self.sizes.sequences} and {self.sizes.chunk}"
            )
        trees: list[list[int]] = []
        if parents is not None:
            if self.sizes.sliding or self.mode is RopeMode.INLINE or AttnKind.MLA in self.kinds:
                raise RunError("token trees need MHA, no sliding windows and no inline rope")
            above = wholes(parents, "parents of tokens")
            if len(above) != sum(counts):
                raise RunError(f"{len(above)} parents of {sum(counts)} tokens")
            ends = np.cumsum(counts).tolist()
            trees = [above[end - n : end] for end, n in zip(ends, counts, strict=True)]
        with self._between_steps() as sequences:
            slots = sequences.append(ids, counts, trees)
        self._step = self._prepared(ids, counts, slots)

    @exclusive
    def end_forward(self) -> None:
        """End a step."""
        self._settle()

    def _settle(self) -> Sequences:
        """End the step, if there is one: what left the windows goes."""
        if self._step is not None and self.sizes.sliding:
            self._sequences = self._sequences.slid()
        self._step = None
        return self._sequences

    @contextmanager
    def _between_steps(self) -> Generator[Sequences]:
        """What is done between steps ends the step that there is, unless it is refused."""
        before = self._step, self._sequences
        try:
            yield self._settle()
        except RunError:
            # Windows slide back, too: the step's places are those of its tokens.
            self._step, self._sequences = before
            raise

    def _prepared(self, ids: list[int], counts: list[int], slots: Ints) -> _Step:
        found = [self._sequences[n] for n in ids]
        tokens = sum(counts)
        bent = any(s.tree != list(range(-1, len(s.tree) - 1)) for s in found)
        decode = max(counts) == 1
        at = Sizes(
            power_of_two(tokens, 1 if decode else 16),
            power_of_two(len(ids)),
            1 if decode else power_of_two(max(counts), 8),
            roomy(max(map(len, found)), 64),
            bent,
        )
        positions, back = np.zeros(tokens, np.int32), np.zeros(tokens, np.int32)
        rows = np.zeros((at.sequences, at.steps), np.int32)
        table = np.full((at.sequences, at.keys), self._trash + 1, np.int32)
        limits, before = np.zeros_like(rows), np.full_like(rows, -1)
        mask = np.zeros((*rows.shape, at.keys), np.bool_) if bent else None
        # In a decode the new token counts as there already, as in TVM.
        there = int(decode and not self.sizes.sliding)
        start = 0
        for b, (s, n) in enumerate(zip(found, counts, strict=True)):
            old, here = len(s) - n, slice(start, start + n)
            index = np.arange(old, old + n)
            rows[b, :n] = np.arange(start, start + n)
            back[here] = b * at.steps + np.arange(n)
            table[b, : len(s)] = s.slots
            limits[b, :n], before[b, :n] = index, old - 1 + there
            positions[here] = index
            if s.tree:
                committed = len(s) - len(s.tree)
                positions[here] = committed + np.array(depths(s.tree)[-n:])
            if mask is not None:
                mask[b, :n, : len(s)] = _mask(s.tree, n, len(s))
            start += n
        tables: dict[str, Array] = {
            "positions": positions,
            "slots": slots,
            "back": back,
            "rows": rows.reshape(-1),
            "table": table,
            "before": before,
        }
        if mask is None:
            among = np.tile(np.arange(at.steps, dtype=np.int32), (at.sequences, 1))
            tables |= {"limits": limits, "among": among}
        else:
            tables |= {"limits_mask": mask, "among_mask": _new_only(mask, found, counts)}
        return _Step(tokens, at, tables)

    # -- calls of programs

    @contextmanager
    def lent(self) -> Generator[Loan]:
        """See :class:`~relax2xla.vm.call.objects.DeviceObject`.

        Where a call fails that has taken the memory, the cache is empty afterwards.
        """
        with self.alone("a program"):
            step = self._step
            form = None if step is None else self._form(step.at)

            def given(name: str, shape: tuple[int, ...]) -> Array:
                assert step is not None
                return step.given(name, shape, self._trash)

            loan = Loan(form, tuple(self._pools), given)
            try:
                yield loan
            except Exception as e:
                if loan.lost():
                    self._pools = self._fresh()
                    self._sequences.clear()
                    self._step = None
                    e.add_note("the cache lost its memory in this call, and is empty now")
                raise
            if loan.back is not None:
                self._pools = list(loan.back)

    def _form(self, at: Sizes) -> PagedForm:
        """What programs of a step depend on; how many tokens they take is for them to say."""
        latent = tuple(kind is AttnKind.MLA for kind in self.kinds)
        inline = self.mode is RopeMode.INLINE
        fast = native.pays(self._heads, at, inline, self.device)
        return PagedForm(self._heads, latent, self.rope, inline, replace(at, tokens=0), fast)

    def _tables(self, step: _Step, *names: str) -> list[Any]:
        """Tables of the step on the device, as programs of the host take them."""
        for name in names:
            if name not in step.placed:
                made = step.given(name, (step.at.tokens,), self._trash)
                step.placed[name] = put(made, self.device)
        return [step.placed[name] for name in names]

    # -- attention

    @exclusive
    def attention_with_fused_qkv(
        self, layer: int, scale: float, qkv: Any, out: Array, bounds: Bounds = _UNBOUND
    ) -> None:
        """Add keys and values of the new tokens, and write attention over their sequences to out.

        qkv: (n, queries + 2 * keys, head_dim); out: (n, queries, head_dim), numpy; n: the tokens of
        the step or more, of which the rest stays as it is. bounds: a window, and a cap of scores.
        """
        step, heads = self._current(layer, AttnKind.MHA), self._heads
        scale = finite(scale, "scale")
        if not isinstance(bounds, Bounds):
            raise RunError(f"bounds are a Bounds; got {bounds!r:.100}")
        if bounds.window and step.at.masked:
            raise RunError(f"attention_with_fused_qkv: {NO_TREES}")
        given = self._given(
            qkv, "qkv", (heads.queries + 2 * heads.keys, heads.size), step, more=True
        )
        n = len(qkv)
        self._check_out(out, "out", (n, heads.queries, heads.size), self.dtype)
        run = programs.fused(heads, self.rope, self.mode is RopeMode.INLINE, step.at, bounds)
        seen = "limits_mask" if step.at.masked else "limits"
        tables = self._tables(step, "positions", "slots", "table", seen, "rows", "back")
        self._pools[layer], made = run(self._pools[layer], given, *tables, np.float32(scale))
        out[: step.tokens] = np.asarray(made)[: step.tokens]

    @exclusive
    def self_attention(
        self, layer: int, scale: float, q: Any, k: Any, v: Any, o: Array, lse: Array
    ) -> None:
        """Attention of the new tokens to each other; the cache is neither read nor written.

        q, k, v: (tokens, heads, size), turned here where the mode is INLINE (not for MLA); o:
        (tokens, heads of q, size of v); lse: (tokens, heads of q), float32, the base-2 logarithm
        of the sums
        """
        step, scale = self._current(layer), finite(scale, "scale")
        (_, hq, d), (_, hkv, dv) = _rank3(q, "q"), _rank3(v, "v")
        if min(hq, hkv, d, dv) < 1 or hq % hkv:
            raise RunError(f"self_attention: {hq} heads of queries and {hkv} of keys")
        given = [
            self._given(x, name, shape, step)
            for x, name, shape in ((q, "q", (hq, d)), (k, "k", (hkv, d)), (v, "v", (hkv, dv)))
        ]
        self._check_out(o, "o", (step.tokens, hq, dv), self.dtype)
        self._check_out(lse, "lse", (step.tokens, hq), "float32")
        at = Sizes(step.at.tokens, step.at.sequences, step.at.steps, step.at.steps, step.at.masked)
        inline = self._inline(layer)
        if inline is not None and inline.size > d:
            raise RunError(f"self_attention: rope of {inline.size} features in heads of {d}")
        run = programs.own(Heads(hq, hkv, d, dv, self.dtype, 0), inline, at)
        among = "among_mask" if step.at.masked else "among"
        (positions,) = self._tables(step, "positions")
        tables = self._tables(step, among, "rows", "back")
        made = run(positions, *given, *tables, np.float32(scale))
        _write_both(made, step.tokens, o, lse)

    @exclusive
    def cross_attention(self, layer: int, scale: float, q: Any, o: Array, lse: Array) -> None:
        """Attention of the new tokens to what was in the cache before the step, all of it.

        Where all sequences get one token, that token is seen, too, so append it before (MLA).
        A query that sees nothing gives zeros, with lse -inf.
        """
        step, heads, scale = self._current(layer), self._heads, finite(scale, "scale")
        latent = self.kinds[layer] is AttnKind.MLA
        given = self._given(q, "q", (heads.queries, heads.size), step)
        self._check_out(o, "o", (step.tokens, heads.queries, heads.value_size), self.dtype)
        self._check_out(lse, "lse", (step.tokens, heads.queries), "float32")
        at = Sizes(step.at.tokens, step.at.sequences, step.at.steps, step.at.keys)
        run = programs.cross(heads, latent, self._inline(layer), at)
        tables = self._tables(step, "positions", "table", "before", "rows", "back")
        made = run(self._pools[layer], given, *tables, np.float32(scale))
        _write_both(made, step.tokens, o, lse)

    @exclusive
    def append_mla_kv(self, layer: int, kv: Any) -> PagedKVCache:
        """Add the latent vectors of the new tokens, (tokens, dim); returns the cache."""
        step, heads = self._current(layer, AttnKind.MLA), self._heads
        given = self._given(kv, "kv", (heads.size,), step)
        run = programs.append(heads, step.at.tokens)
        (self._pools[layer],) = run(self._pools[layer], given, *self._tables(step, "slots"))
        return self

    @exclusive
    def query_positions(self) -> Any:
        """The positions of the step's tokens in their sequences, int32, a ``jax.Array``."""
        return put(self._current(0).tables["positions"], self.device)

    @exclusive
    def debug_get_kv(self, number: int, start: int, end: int, *out: Array) -> None:
        """Write tokens ``start`` to ``end`` of a sequence: of all layers, for tests.

        out: keys and values, each (layers, end - start, heads, size); of MLA (layers, end - start,
        size) alone
        """
        s = self._sequences[whole(number, "a sequence's number")]
        start, end = wholes((start, end), "the first token and the one after the last")
        if len(out) not in (1, 2):
            raise RunError(f"debug_get_kv writes keys and values, or MLA's alone; got {len(out)}")
        if not 0 <= start < end <= len(s):
            raise RunError(f"tokens {start} to {end} of sequence {number}, which has {len(s)}")
        kind = AttnKind.MLA if len(out) == 1 else AttnKind.MHA
        if any(k is not kind for k in self.kinds):
            raise RunError(f"this cache has other layers than {kind.name}")
        heads = self._heads
        row = (heads.keys, heads.size) if kind is AttnKind.MHA else (heads.size,)
        for i, o in enumerate(out):
            self._check_out(o, f"out {i}", (len(self.kinds), end - start, *row), self.dtype)
        for layer, pool in enumerate(self._pools):
            found = np.asarray(pool)
            if kind is AttnKind.MLA:
                out[0][layer] = found[s.slots[start:end]]
                continue
            both = found.reshape(2, heads.keys, heads.slots, heads.size)[:, :, s.slots[start:end]]
            for o, x in zip(out, both, strict=True):
                o[layer] = x.swapaxes(0, 1)

    def _current(self, layer: int, kind: AttnKind | None = None) -> _Step:
        if self._step is None:
            raise RunError("there is no step; call begin_forward first")
        if not 0 <= whole(layer, "a layer") < len(self.kinds):
            raise RunError(f"layer {layer} of a cache of {len(self.kinds)} layers")
        if kind is not None and self.kinds[layer] is not kind:
            raise RunError(f"layer {layer} is of the kind {self.kinds[layer].name}")
        return self._step

    def _inline(self, layer: int) -> Rotation | None:
        inline = self.mode is RopeMode.INLINE and self.kinds[layer] is AttnKind.MHA
        return self.rope if inline else None

    def _given(
        self, x: Any, name: str, tail: tuple[int, ...], step: _Step, more: bool = False
    ) -> Any:
        """``x`` with as many rows as the program takes; RunError for another shape or dtype."""
        shape, wanted = tuple(array(x, name).shape), step.tokens
        rows = shape[0] if shape else 0
        if shape[1:] != tail or (rows < wanted if more else rows != wanted):
            need = f"{wanted}{' or more' if more else ''}, {', '.join(map(str, tail))}"
            raise RunError(f"{name} must be of the shape ({need}); got {shape}")
        if str(x.dtype) != self.dtype:
            raise RunError(f"{name} must be of {self.dtype}, as the cache is; got {x.dtype}")
        if rows == step.at.tokens == wanted:
            return x
        made = np.zeros((step.at.tokens, *tail), numpy_dtype(self.dtype))
        made[:wanted] = np.asarray(x)[:wanted]
        return made

    def _check_out(self, out: Any, name: str, shape: tuple[int, ...], dtype: str) -> None:
        if not isinstance(out, np.ndarray) or not out.flags.writeable:
            raise RunError(f"{name} must be a numpy array that can be written to")
        given = cast("Array", out)
        if given.shape != shape or str(given.dtype) != dtype:
            raise RunError(f"{name} must be {dtype} {shape}; got {given.dtype} {given.shape}")


def merge_attention(o: Any, lse: Any, other: Any, other_lse: Any) -> tuple[Any, Any]:
    """Attention over two sets of keys from that over each, with base-2 logarithms of the sums.

    o, other: (tokens, heads, size); lse, other_lse: (tokens, heads). The first two are overwritten
    where they are numpy arrays that can be.
    """
    names = ("o", "lse", "other", "other_lse")
    sides = zip(names, (o, lse, other, other_lse), strict=True)
    first, a, second, b = (np.asarray(array(x, f"merge: {name}")) for name, x in sides)
    a, b = a.astype(np.float32), b.astype(np.float32)
    if first.shape != second.shape or a.shape != b.shape or first.shape[:2] != a.shape:
        raise RunError(f"merge: {first.shape} and {second.shape} with {a.shape} and {b.shape}")
    top = np.maximum(a, b)
    safe = np.where(np.isneginf(top), np.float32(0), top)
    wa, wb = np.exp2(a - safe), np.exp2(b - safe)
    total = wa + wb
    some = np.where(total > 0, total, np.float32(1))
    mixed = first.astype(np.float32) * (wa / some)[..., None]
    mixed += second.astype(np.float32) * (wb / some)[..., None]
    made = mixed.astype(first.dtype)
    with np.errstate(divide="ignore"):
        made_lse = (safe + np.log2(total)).astype(np.float32)
    for given, new in ((o, made), (lse, made_lse)):
        if isinstance(given, np.ndarray) and given.flags.writeable:
            given[...] = new
    return made, made_lse


def _write_both(made: Any, tokens: int, o: Array, lse: Array) -> None:
    o[...] = np.asarray(made[0])[:tokens]
    lse[...] = np.asarray(made[1])[:tokens]


def _pair(values: Any, what: str) -> tuple[int, int]:
    """Two positive whole numbers; TVMError for anything else."""
    try:
        one, two = wholes(values, what)
    except (RunError, ValueError):
        one = two = 0
    if min(one, two) < 1:
        raise TVMError(f"{what} are two positive whole numbers; got {values!r:.100}")
    return one, two


def _rank3(x: Any, name: str) -> tuple[int, int, int]:
    if len(array(x, name).shape) != 3:
        raise RunError(f"{name} must be of rank 3; got {tuple(x.shape)}")
    return x.shape


def _mask(tree: Sequence[int], new: int, length: int) -> npt.NDArray[np.bool_]:
    """Which of ``length`` tokens each of the last ``new`` sees: ancestors, and what is committed.

    Without a tree all those before it, and itself.
    """
    if not tree:
        return np.tri(new, length, length - new, dtype=np.bool_)
    size = len(tree)
    seen = np.zeros((size, length), np.bool_)
    for node, parent in enumerate(tree):
        if parent == -1:
            seen[node, : length - size] = True
        else:
            seen[node] = seen[parent]
        seen[node, length - size + node] = True
    return seen[-new:]


def _new_only(mask: Any, found: Sequence[Any], counts: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Of the mask of a step the part among its new tokens: (sequences, steps, steps)."""
    made = np.zeros((*mask.shape[:2], mask.shape[1]), np.bool_)
    for b, (s, n) in enumerate(zip(found, counts, strict=True)):
        made[b, :n, :n] = mask[b, :n, len(s) - n : len(s)]
    return made
