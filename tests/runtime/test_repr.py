"""``repr`` of what users hold in their hands: short, and what it is."""

from __future__ import annotations

import relax2xla as rx
from relax2xla.runtime.device import device
from relax2xla.vm.observe.profile import Report, Row


def test_a_device_is_written_as_it_is_made() -> None:
    assert repr(rx.cpu()) == "device('cpu:0')"
    assert eval(repr(rx.cuda(1)), {"device": device}) == rx.cuda(1)


def test_a_profile_says_what_it_is_of() -> None:
    row = Row("softmax", 1, 1e-6)
    report = Report("main", 2e-3, (row,), (row, row))
    assert repr(report) == "<profile of main: 2.000 ms, calls: 1, operations: 2>"
