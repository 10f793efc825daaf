"""Training: from a recipe to a trained model and a result file, through any interruption."""

from mgrade.ops import cross_entropy
from mgrade.train.finished import judge_run, open_run
from mgrade.train.optimiser import parameter_groups
from mgrade.train.options import Training
from mgrade.train.recipe import Recipe, load_recipe, shipped
from mgrade.train.run import NotFiniteError, Run
from mgrade.train.seeds import Stopped, launch, run_missing
from mgrade.train.step import TrainingStep, cosine

__all__ = [
    "NotFiniteError",
    "Recipe",
    "Run",
    "Stopped",
    "Training",
    "TrainingStep",
    "cosine",
    "cross_entropy",
    "judge_run",
    "launch",
    "load_recipe",
    "open_run",
    "parameter_groups",
    "run_missing",
    "shipped",
]
