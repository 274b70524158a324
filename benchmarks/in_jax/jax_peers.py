"""Twenty networks of torch as functions of JAX, by relax2xla and by its peers.

``python -m benchmarks jax_peers --peers FOLDER``: FOLDER has an environment for each peer, by its
name (``FOLDER/torchax/bin/python``): torchax, torch2jax, jaxonnxruntime. Those of torch take the
module itself; those of ONNX take what ``torch.onnx.export`` writes (opset 18). Each says, under
``jax.jit``, the values of the module and the gradients of its parameters (the mean square of the
results), which torch says too. Prints a line a network; writes the table of docs/jax.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.in_jax.jax_peers_child import PEERS

NETWORKS = (
    *("bert_base", "bilstm_tagger", "clip", "convnext", "densenet", "efficientnet", "gcn"),
    *("gpt2_small", "llama", "mobilenet_v2", "moe_dense", "resnet18", "speech_stft", "swin", "t5"),
    *("translator", "unet_transposed", "vae", "vit_b16", "wavenet"),
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "jax.md"
BEGIN, END = "<!-- jax_peers: begin -->", "<!-- jax_peers: end -->"
_SECONDS = 900


def main(quick: bool = False, peers: str = "") -> None:
    """Try all, and write the table."""
    if not peers:
        raise SystemExit("--peers FOLDER names the folder of the peers' environments")
    names = NETWORKS[:2] if quick else NETWORKS
    with tempfile.TemporaryDirectory() as folder:
        exported = _child(sys.executable, "export", folder, names)
        found = {
            peer: _child(_python(peer, peers), peer, folder, names, exported) for peer in PEERS
        }
    if not quick:
        text = DOCUMENT.read_text()
        before, _, rest = text.partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}")


def _python(peer: str, folder: str) -> str:
    return (
        sys.executable if peer.startswith("relax2xla") else str(Path(folder, peer, "bin", "python"))
    )


def _child(
    python: str, what: str, folder: str, names: tuple[str, ...], exported: Mapping[str, Any] = {}
) -> dict[str, dict[str, str]]:
    """What a process says of each network; where it ends on one, another goes on behind it."""
    made: dict[str, dict[str, str]] = {}
    for name in names:
        if "error" in exported.get(name, {}) and "onnx" in what.lower():
            made[name] = {"error": f"no ONNX file: {exported[name]['error']}"}
    while rest := [n for n in names if n not in made]:
        command = [python, "-m", "benchmarks.in_jax.jax_peers_child", what, folder, *rest]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_SECONDS
            )
            lines, why = done.stdout.splitlines(), f"the process ended: {done.stderr[-300:]}"
        except subprocess.TimeoutExpired as e:
            lines, why = (e.stdout or b"").decode().splitlines(), f"no answer in {_SECONDS} s"
        for line in lines:
            if line.startswith("{"):
                said = json.loads(line)
                made[said.pop("name")] = said
        left = [n for n in rest if n not in made]
        if left:
            made[left[0]] = {"error": why}
    for name in names:
        print(f"{what}, {name}: {made[name]}", flush=True)
    return made


def table(found: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """A line a network, a column a peer."""
    lines = [f"| | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    names = next(iter(found.values()))
    lines += [
        f"| {name} | {' | '.join(_cell(results[name]) for results in found.values())} |"
        for name in names
    ]
    right = [sum(_cell(r) == "yes" for r in results.values()) for results in found.values()]
    lines.append(f"| right, of {len(names)} | {' | '.join(map(str, right))} |")
    return "\n".join(lines)


def _cell(said: Mapping[str, str]) -> str:
    """Whether values and gradients are right, or the first that is not."""
    if "error" in said:
        return "fails"
    if said["values"] != "yes":
        return "other values"
    return {"yes": "yes", "other": "other gradients"}.get(said["grad"], "values alone")
