"""The table of TVM's cases that fail here: its form, and how it is held against what they gave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from . import tvm_cases
from .tvm_cases import Row


def test_the_table() -> None:
    table = tvm_cases.rows()
    assert len(table) == len(set(table)) > 50
    for row in table:
        assert row.versions <= {"0.20", "0.25"}
        assert row.versions
        assert row.files
        assert len(row.reason) > 10
        assert "different value" not in row.reason
        re.compile(row.cases)


def test_what_failed_is_held_against_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [
        Row(frozenset({"0.20"}), frozenset({"op_nn"}), r"loss\[.*\]", "another reason"),
        Row(frozenset({"0.20"}), frozenset({"op_view"}), "view", "none fails"),
        Row(frozenset({"0.25"}), frozenset({"op_nn"}), "other", "another version"),
    ]
    cases = [
        ("tests/python/relax/test_op_nn.py::test_loss[a]", "failed"),
        ("tests/python/relax/test_op_nn.py::test_other", "passed"),
        ("tests/python/relax/test_op_nn.py::test_other", "error"),
        ("tests/python/relax/test_op_view.py::test_view", "passed"),
    ]
    lines = [json.dumps({"id": case, "outcome": outcome}) for case, outcome in cases]
    (tmp_path / "some.jsonl").write_text("\n".join(lines))
    found = tvm_cases.outcomes(tmp_path)
    assert list(found.values()) == ["failed", "error", "passed"]
    lost, stale = tvm_cases.unexplained("0.20", found, table)
    assert (lost, stale) == (["test_op_nn.py::test_other"], [table[1]])
    monkeypatch.setattr(tvm_cases, "rows", lambda: table)
    assert tvm_cases.main("0.20", str(tmp_path)) == 1
    assert "no reason: test_op_nn.py::test_other" in capsys.readouterr().out
    assert tvm_cases.main("0.25", str(tmp_path)) == 1
    assert tvm_cases.main("0.25", str(tmp_path / "none")) == 2
    found.pop("test_op_nn.py::test_other")
    assert tvm_cases.unexplained("0.20", found, table) == ([], [table[1]])
