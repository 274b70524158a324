"""Language models in ``relax2xla.frontend.nn``, read from folders of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.models.llm.config import ARCHITECTURES as ARCHITECTURES
from examples.models.llm.config import Config as Config
from examples.models.llm.config import config_from
from examples.models.llm.decoder import CausalLM as CausalLM
from relax2xla.frontend.nn.llm.folder import bind, read_config, read_tensors

# What folders hold beside weights: masks and frequencies that are computed here.
_IGNORED = (r"rotary_emb\.inv_freq$", r"\battn\.(masked_)?bias$")


def load(folder: str | Path, overrides: Mapping[str, Any] | None = None) -> CausalLM:
    """The model of a folder as transformers saves it, with its weights in float32.

    overrides: fields of config.json that are to be otherwise. Raises FileFormatError for a folder
    that is none, for missing and unexpected tensors and those of other shapes (all of them are
    named), UnsupportedError for architectures and settings that are not here.
    """
    fields = {**read_config(folder), **(overrides or {})}
    model = CausalLM(config_from(fields))
    ignored = (*_IGNORED, r"^lm_head\.weight$") if model.config.tied else _IGNORED
    bind(model, read_tensors(folder), model.sources(), ignored)
    return model
