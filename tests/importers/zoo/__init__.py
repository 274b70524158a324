"""Small networks of many architectures, in plain torch: what the importers are tried on.

``NETWORKS["t5"].build()`` makes the module, ``.arguments()`` its example inputs. The five published
networks of ``examples/models`` are among them, in their small form.
"""

from __future__ import annotations

from examples.models import MODELS

from . import convolution, pictures, sequences, sized, structured, transformers
from .network import Network as Network
from .network import export_dims as export_dims


class Example(Network):
    """A network of ``examples/models``, which has weights of its own."""

    def build(self, seed: int = 0):
        return self.make()


def _examples() -> dict[str, Network]:
    return {
        name: Example(
            lambda model=model: model.build(small=True),
            lambda draw, batch, model=model: model.example_inputs(batch, batch, small=True),
            tuple({0: "batch"} for _ in model.inputs),
        )
        for name, model in MODELS.items()
    }


NETWORKS: dict[str, Network] = dict(
    sorted(
        {
            **_examples(),
            **convolution.NETWORKS,
            **pictures.NETWORKS,
            **transformers.NETWORKS,
            **sequences.NETWORKS,
            **structured.NETWORKS,
            **sized.NETWORKS,
        }.items()
    )
)
