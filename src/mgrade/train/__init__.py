"""Training: which parameter learns how fast, what a loss is, and one step that does it all."""

from mgrade.ops import cross_entropy
from mgrade.train.optimiser import parameter_groups
from mgrade.train.step import TrainingStep, cosine

__all__ = ["TrainingStep", "cosine", "cross_entropy", "parameter_groups"]
