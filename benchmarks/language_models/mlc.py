"""MLC-LLM's model definitions, unchanged, by ``relax2xla.tvm``: exported, built, and run.

``python -m benchmarks mlc --mlc PATH`` takes a checkout of mlc-ai/mlc-llm (the folder that holds
``python/mlc_llm``) and makes each of its models small (``mlc_models``). A model is exported and
built in float32 and with groups of four bits, and run with random weights: its logits after a
prefill, decodes, a batched prefill and a batched decode are compared with transformers, where that
has the architecture (weights go by its folder and MLC's own mapping), and else with itself: those
of a decode with those of a prefill of the same tokens. Table: docs/nn.md.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from benchmarks.language_models.mlc_models import CONTEXT, SMALL, VOCABULARY, Small

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/nn.md"
#: A line for a model that was measured; the last one counts.
RESULTS: Final = ROOT / "out/mlc.jsonl"
BEGIN, END = "<!-- mlc: python -m benchmarks mlc -->", "<!-- end of mlc -->"
FLOAT, FOUR_BITS = "q0f32", "q4f32_1"
Arrays = dict[str, np.ndarray]


@dataclass
class Row:
    """What became of a model; a text in place of True is the first error."""

    model: str
    exported: bool | str = False
    built: bool | str = False
    exported_4: bool | str = False
    built_4: bool | str = False
    error: float | None = None
    peer: str = ""
    parts: str = ""
    why: str = ""


def use(path: Path) -> Any:
    """MLC's table of models, imported over relax2xla without the package's root and its library."""
    import relax2xla.tvm.install  # noqa: F401  # pyright: ignore[reportUnusedImport]

    folder = path / "python" / "mlc_llm" if (path / "python").is_dir() else path / "mlc_llm"
    if not (folder / "model").is_dir():
        raise SystemExit(f"{path} is no checkout of mlc-llm: it has no python/mlc_llm/model")
    package = ModuleType("mlc_llm")
    package.__path__ = [str(folder)]
    sys.modules["mlc_llm"] = package
    import logging

    logging.disable(logging.INFO)
    import importlib

    return importlib.import_module("mlc_llm.model.model")


# -- making a model --------------------------------------------------------------------------------
@dataclass
class Made:
    """A model of MLC's, exported."""

    config: Any
    mod: Any
    params: list[tuple[str, Any]]
    quantization: Any
    mapping: Any


def export(entry: Any, small: Small, scheme: str) -> Made:
    """The model in a scheme of quantisation, as ``mlc_llm compile`` exports it."""
    from mlc_llm.quantization import QUANTIZATION  # pyright: ignore

    config = entry.config.from_dict(copy.deepcopy(small.config | small.mlc_only))
    quantization = QUANTIZATION[scheme]
    if quantization.kind not in entry.quantize:
        raise ValueError(f"MLC does not quantise this model by {quantization.kind}")
    model, mapping = entry.quantize[quantization.kind](config, quantization)
    mod, params, *_ = model.export_tvm(spec=model.get_default_spec(), allow_extern=True)
    return Made(config, mod, params, quantization, mapping)


def random_weights(made: Made, seed: int = 0) -> list[np.ndarray]:
    """Weights for the parameters in order; scales of four-bit groups are small and positive."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for name, p in made.params:
        shape = [int(n) if isinstance(n, int) else VOCABULARY for n in p.shape]
        if p.dtype == "uint32":
            found.append(rng.integers(0, 2**32, shape, dtype=np.uint32))
        else:
            mean = 1.0 if "norm" in name or "ln" in name else 0.0
            noise = mean + np.float32(0.1) * rng.standard_normal(shape, np.float32)
            found.append((abs(noise) / 50 if name.endswith("scale") else noise).astype(p.dtype))
    return found


# -- transformers ----------------------------------------------------------------------------------
def peer(small: Small, folder: str) -> tuple[Any, Arrays]:
    """transformers' model with random weights, and what it writes into a folder."""
    import torch
    import transformers
    from safetensors.numpy import load_file

    fields = copy.deepcopy(small.config | small.hf_only)
    fields.pop("model_type", None)
    config = transformers.AutoConfig.for_model(small.hf, **fields)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForCausalLM
    if small.hf == "bert":
        model = transformers.BertModel(config, add_pooling_layer=False)
    elif small.hf == "llava":
        model = transformers.LlavaForConditionalGeneration(config)
    else:
        model = auto.from_config(config)
    model.eval()
    with torch.no_grad():
        for x in (*model.parameters(), *_biases(model)):
            x += 0.1 * torch.randn_like(x)
    model.save_pretrained(folder)
    found: Arrays = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        found |= load_file(file)
    return model, found


def _biases(model: Any) -> Iterable[Any]:
    return (b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias"))


_QUERY_OR_KEY: Final = re.compile(r"\.[qk]_proj\.weight$")


def _halves(weight: np.ndarray, small: Small) -> np.ndarray:
    """The rows of each head, those of even places first."""
    size = small.config["hidden_size"] // small.config["num_attention_heads"]
    heads = weight.reshape(-1, size, weight.shape[-1])
    return np.concatenate([heads[:, ::2], heads[:, 1::2]], axis=1).reshape(weight.shape)


def load(entry: Any, small: Small, made: Made, weights: Arrays) -> list[np.ndarray]:
    """The parameters in order by MLC's own mapping of names."""
    from mlc_llm.quantization import QUANTIZATION  # pyright: ignore

    source = entry.source["huggingface-safetensor"]
    mapping = source(made.config, QUANTIZATION[FLOAT])
    # GPT-2's own files lack the prefix that transformers writes; a text model stands for Gemma 3.
    known = {k.removeprefix("transformer."): v for k, v in weights.items()}
    known |= {f"language_model.{k}": v for k, v in weights.items()} | weights
    # transformers 5 has no model between the tower and its parts.
    tower = "vision_tower."
    known |= {
        k.replace(tower, f"{tower}vision_model."): w for k, w in weights.items() if tower in k
    }
    if small.turns_halves:
        known |= {k: _halves(w, small) for k, w in known.items() if _QUERY_OR_KEY.search(k)}
    plain = {
        name: np.asarray(mapping.map_func[name](*(known[w] for w in wanted)))
        for name, wanted in mapping.param_map.items()
    }
    return [plain[name] for name, _ in made.params]


# -- running a model -------------------------------------------------------------------------------
class Session:
    """A built model with weights: the calls that a server makes."""

    def __init__(self, mod: Any, weights: list[np.ndarray], sequences: int = 4) -> None:
        import relax2xla

        self.vm: Any = relax2xla.VirtualMachine(relax2xla.build(mod))
        self.weights = tuple(map(relax2xla.nd.array, weights))
        self.names = {g.name_hint for g in mod.get_global_vars()}
        call: Any = relax2xla.get_global_func
        self.add = call("vm.builtin.kv_state_add_sequence")
        self.begin = call("vm.builtin.kv_state_begin_forward")
        self.end = call("vm.builtin.kv_state_end_forward")
        if "create_paged_kv_cache" in self.names:
            sizes = [(n,) for n in (sequences, 4 * CONTEXT, CONTEXT, 16, 0)]
            self.cache = self.vm["create_paged_kv_cache"](*sizes)
        elif "create_rnn_state" in self.names:
            self.cache = self.vm["create_rnn_state"]((sequences,), (2,))
        self.runs_batched_prefill = "create_rnn_state" not in self.names

    def embed(self, tokens: np.ndarray) -> np.ndarray:
        """(n,) to (n, features)"""
        return np.asarray(self.vm["embed"](tokens.astype(np.int32), self.weights))

    def step(self, name: str, ids: list[int], lengths: list[int], *given: Any) -> np.ndarray:
        """The logits of one call."""
        self.begin(self.cache, ids, lengths)
        logits, self.cache = self.vm[name](*given, self.cache, self.weights)
        self.end(self.cache)
        return np.asarray(logits)


def logits_of(
    session: Session, tokens: list[np.ndarray], together: bool = True
) -> dict[str, np.ndarray]:
    """What the model says after tokens of three sequences, by the way in which it was asked."""
    first, *others = tokens
    found: dict[str, np.ndarray] = {}
    x = session.embed(first)[None]
    found["embed"] = x[0]
    session.add(session.cache, 0)
    n = len(first) - 3
    found["prefill"] = session.step("prefill", [0], [n], x[:, :n])[0]
    said = [session.step("decode", [0], [1], x[:, i : i + 1])[0, 0] for i in range(n, n + 2)]
    found["decode"] = np.stack(said)
    both = [session.embed(t)[None] for t in others]
    lengths = [x.shape[1] - 1 for x in both]
    for number in (1, 2):
        session.add(session.cache, number)
    if session.runs_batched_prefill:
        parts = np.concatenate([x[:, :k] for x, k in zip(both, lengths, strict=True)], axis=1)
        ends = (np.cumsum(lengths) - 1).astype(np.int32)
        made = session.step("batch_prefill", [1, 2], lengths, parts, ends)
        found["batch prefill"] = made[0]
    else:
        for i, (y, k) in enumerate(zip(both, lengths, strict=True)):
            session.step("prefill", [i + 1], [k], y[:, :k])
    last = np.concatenate([x[:, -1:], *(y[:, -1:] for y in both)])
    groups = [[0, 1, 2]] if together else [[0], [1], [2]]
    found["batch decode"] = np.concatenate(
        [session.step("batch_decode", g, [1] * len(g), last[g])[:, 0] for g in groups]
    )
    return found


def wanted_of(
    full: Callable[[np.ndarray], np.ndarray], tokens: list[np.ndarray], batched: bool
) -> dict[str, np.ndarray]:
    """The same by a function that gives the logits of every place of one sequence."""
    first, *others = (full(t) for t in tokens)
    found = {
        "prefill": first[-4:-3],
        "decode": first[-3:-1],
        "batch decode": np.stack([first[-1], *(o[-1] for o in others)]),
    }
    if batched:
        found["batch prefill"] = np.stack([o[-2] for o in others])
    return found


def sentences(seed: int = 1) -> list[np.ndarray]:
    """Tokens of three sequences."""
    rng = np.random.default_rng(seed)
    return [rng.integers(3, VOCABULARY - 2, n).astype(np.int32) for n in (9, 6, 4)]


def by_itself(session: Session, tokens: np.ndarray) -> np.ndarray:
    """The logits of the last place by one prefill, in a sequence of its own."""
    session.add(session.cache, 3)
    return session.step("prefill", [3], [len(tokens)], session.embed(tokens)[None])[0, -1:]


def differences(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest difference of each part."""
    return {k: float(np.max(np.abs(got[k] - want[k].reshape(got[k].shape)))) for k in want}


# -- one model -------------------------------------------------------------------------------------
def measure(name: str, models: Any) -> Row:
    """All of a model's row."""
    row, entry, small = Row(name), models[name], SMALL[name]
    made = _try(row, "exported", lambda: export(entry, small, FLOAT))
    four = _try(row, "exported_4", lambda: export(entry, small, FOUR_BITS))
    import relax2xla

    if four is not None:
        _try(row, "built_4", lambda: relax2xla.build(four.mod))
    if made is None or _try(row, "built", lambda: relax2xla.build(made.mod)) is None:
        return row
    try:
        parts = _compare(row, entry, made, small)
    except Exception as e:
        row.why = _said(e)
        return row
    row.error = max(parts.values())
    row.parts = ", ".join(f"{k} {v:.0e}" for k, v in parts.items())
    return row


def _said(e: Exception) -> str:
    where = traceback.extract_tb(e.__traceback__)[-1]
    first = str(e).strip().split("\n")[0]
    return f"{type(e).__name__}: {first[:300]} ({Path(where.filename).name}:{where.lineno})"


def _try(row: Row, what: str, run: Callable[[], Any]) -> Any:
    try:
        made = run()
    except Exception as e:
        setattr(row, what, _said(e))
        return None
    setattr(row, what, True)
    return made


def _compare(row: Row, entry: Any, made: Made, small: Small) -> dict[str, float]:
    if small.hf is None:
        row.peer = "itself"
        return _without_peer(made)
    row.peer = "transformers"
    with tempfile.TemporaryDirectory() as folder:
        model, weights = peer(small, folder)
    return _with_peer(entry, made, small, model, weights)


def _with_peer(
    entry: Any, made: Made, small: Small, model: Any, weights: Arrays
) -> dict[str, float]:
    import torch

    def full(tokens: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = model(torch.from_numpy(tokens[None].astype(np.int64)))
        return (out.last_hidden_state if small.hf == "bert" else out.logits)[0].numpy()

    if small.hf == "bert":
        return _bert(entry, small, made, weights, full)
    session = Session(made.mod, load(entry, small, made, _tower(weights, model)))
    tokens = sentences()
    want = wanted_of(full, tokens, session.runs_batched_prefill)
    with torch.no_grad():
        ids = torch.from_numpy(tokens[0].astype(np.int64))
        want["embed"] = model.get_input_embeddings().weight[ids].numpy()
    found = differences(logits_of(session, tokens, small.batches), want)
    if "image_embed" in session.names:
        found["image embed"] = _image(session, model)
    return found


def _tower(weights: Arrays, model: Any) -> Arrays:
    """Weights as MLC's vision tower takes them, whose attention is as BERT's is (``_bert``)."""
    vision = getattr(model.config, "vision_config", None)
    if vision is None:
        return weights
    root = np.float32(np.sqrt(vision.hidden_size // vision.num_attention_heads))
    queries = re.compile(r"vision_tower\..*\.q_proj\.")
    return {k: w / root if queries.search(k) else w for k, w in weights.items()}


def _image(session: Session, model: Any) -> float:
    """The largest difference of what an image of the tower's own size becomes."""
    import torch

    size = model.config.vision_config.image_size
    pixels = np.random.default_rng(2).integers(0, 256, (1, size, size, 3), dtype=np.uint8)
    got = np.asarray(session.vm["image_embed"](pixels, session.weights))
    # What MLC's definition and transformers' processor make of the colours.
    mean, deviation = (np.array(c, np.float32) for c in (_MEAN, _DEVIATION))
    scaled = ((pixels.astype(np.float32) / 255 - mean) / deviation).transpose(0, 3, 1, 2)
    with torch.no_grad():
        features = model.get_image_features(
            pixel_values=torch.from_numpy(np.ascontiguousarray(scaled)),
            vision_feature_layer=-2,
            vision_feature_select_strategy="default",
        )
    want = np.concatenate([np.asarray(f) for f in getattr(features, "pooler_output", features)])
    return float(np.max(np.abs(got - want.reshape(got.shape))))


_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)


def _bert(entry: Any, small: Small, made: Made, weights: Arrays, full: Any) -> dict[str, float]:
    import relax2xla

    # MLC's attention of BERT does not divide by the root of the head's size: the queries are.
    root = np.float32(np.sqrt(made.config.head_dim))
    scaled = {k: v / root if ".query." in k else v for k, v in weights.items()}
    vm: Any = relax2xla.VirtualMachine(relax2xla.build(made.mod))
    tokens = sentences()[0]
    given = tuple(load(entry, small, made, scaled))
    out = vm["prefill"](tokens[None], np.ones((1, len(tokens)), np.int32), given)
    return {"prefill": float(np.max(np.abs(np.asarray(out)[0] - full(tokens))))}


def _without_peer(made: Made) -> dict[str, float]:
    weights = random_weights(made)
    session = Session(made.mod, weights)
    if "prefill" not in session.names:
        return _drafts(session, made)
    tokens = sentences()
    got = logits_of(session, tokens)
    want = by_itself(session, tokens[0])
    return differences({"batch decode": got["batch decode"][:1]}, {"batch decode": want})


def _drafts(session: Session, made: Made) -> dict[str, float]:
    """Models that propose tokens (Medusa, EAGLE) have other functions: batched beside alone."""
    rng = np.random.default_rng(0)
    size = made.config.hidden_size
    x = rng.normal(size=(2, 1, size)).astype(np.float32)
    if "get_logits" in session.names:
        call = lambda v: np.asarray(session.vm["get_logits"](v, session.weights))  # noqa: E731
        both, alone = call(x[:, 0]), [call(x[i : i + 1, 0]) for i in range(2)]
        return {"logits": float(np.max(np.abs(both - np.concatenate(alone, axis=-2))))}
    y = np.repeat(rng.normal(size=(1, 5, size)).astype(np.float32), 1, axis=0)
    session.add(session.cache, 0)
    session.add(session.cache, 1)
    whole = session.step("prefill_to_last_hidden_states", [0], [5], y)[0, -1]
    session.step("prefill_to_last_hidden_states", [1], [4], y[:, :4])
    last = session.step("decode_to_last_hidden_states", [1], [1], y[:, 4:])[0, 0]
    return {"hidden": float(np.max(np.abs(whole - last)))}


# -- the table -------------------------------------------------------------------------------------
def _mark(value: bool | str) -> str:
    return "yes" if value is True else "no"


def table(rows: list[Row]) -> str:
    """The table of docs/nn.md."""
    lines = [
        "| model | exported q0f32 | built | exported q4f32_1 | built | largest difference | from |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        error = "" if r.error is None else f"{r.error:.0e}"
        marks = " | ".join(map(_mark, (r.exported, r.built, r.exported_4, r.built_4)))
        lines.append(f"| {r.model} | {marks} | {error} | {r.peer} |")
    counts = [
        sum(getattr(r, k) is True for r in rows)
        for k in ("exported", "built", "exported_4", "built_4")
    ]
    cells = " | ".join(f"**{n} of {len(rows)}**" for n in counts)
    return "\n".join([*lines, f"| **all** | {cells} | | |"])


def write(rows: list[Row]) -> None:
    """Put the table between its marks in docs/nn.md."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")


def results() -> dict[str, Row]:
    """The last row of each model."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row.model: row for row in (Row(**json.loads(line)) for line in lines)}


def main(quick: bool = False, mlc: str | None = None, only: list[str] | None = None) -> None:
    """Measure the models (``quick``: those without a row), and write the page."""
    if mlc is None:
        raise SystemExit("mlc needs a checkout of mlc-ai/mlc-llm: --mlc PATH")
    models = use(Path(mlc)).MODELS
    RESULTS.parent.mkdir(exist_ok=True)
    for name in models:
        if name not in SMALL or (only and not any(fnmatch(name, p) for p in only)):
            continue
        if quick and name in results():
            continue
        start = time.perf_counter()
        row = measure(name, models)
        with RESULTS.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        said = [f"{k}: {v}" for k, v in asdict(row).items() if isinstance(v, str) and v]
        print(f"{name:12s} {time.perf_counter() - start:5.1f} s  {row.error}  {said}", flush=True)
    rows = [results()[name] for name in models if name in results()]
    print(table(rows))
    write(rows)
