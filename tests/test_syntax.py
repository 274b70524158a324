"""Texts are parsed in many threads at once, while the collector hands over between them."""

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

from relax2xla import syntax

TEXT = "\n".join(f"x{i} = {'(1 + ' * 20}[{i}, 'text']{')' * 20}" for i in range(40))


def test_threads() -> None:
    """CPython 3.11 counts the depth of all threads in one place (see relax2xla/syntax.py)."""

    def hand_over(phase: str, info: object) -> None:
        time.sleep(1e-5)

    threshold = gc.get_threshold()
    gc.callbacks.append(hand_over)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as pool:
            trees = list(pool.map(syntax.parse, [TEXT] * 32))
    finally:
        gc.callbacks.remove(hand_over)
        gc.set_threshold(*threshold)
    assert {ast.unparse(t) for t in trees} == {ast.unparse(ast.parse(TEXT))}


def test_literal() -> None:
    assert syntax.literal(" (1, 'a', b'c')") == (1, "a", b"c")
