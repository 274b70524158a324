"""The metadata section as hostile input: every entry is checked before it is used."""

from __future__ import annotations

import json

import pytest

from relax2xla.script.metadata import decode

GOOD = {"dtype": "float32", "shape": [2], "data": "AACAPwAAAEA="}


def section(**changes: object) -> str:
    return json.dumps({"relax.expr.Constant": [{**GOOD, **changes}]})


def test_decode() -> None:
    (made,) = decode(section())["relax.expr.Constant"]
    assert made.data.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ("[]", "must be a JSON object"),
        ('{"os.system": []}', "expected a list under one of"),
        ('{"relax.expr.Constant": {}}', "expected a list"),
        ('{"relax.expr.Constant": [3]}', "must be a JSON object"),
        (section(dtype="object"), "unknown dtype 'object'"),
        (section(shape=[-1]), "no valid shape"),
        (section(shape="2"), "no valid shape"),
        (section(shape=[True, 2]), "no valid shape"),
        (section(shape=[1 << 50, 2]), "would take"),
        (section(shape=[3]), "do not hold 12 bytes"),
        (section(data="AACAPwAAAE*="), "no base64"),
        (section(data=None), "do not hold 8 bytes"),
    ],
)
def test_decode_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(text)
