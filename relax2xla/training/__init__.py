"""Training: losses, optimisers and the trainer, under the names of ``tvm.relax.training``."""

from relax2xla.training import loss as loss
from relax2xla.training import optimizer as optimizer
from relax2xla.training import utils as utils
from relax2xla.training.setup_trainer import SetupTrainer as SetupTrainer
from relax2xla.training.trainer import Trainer as Trainer
from relax2xla.training.utils import AppendLoss as AppendLoss
