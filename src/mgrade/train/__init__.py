"""Training: from a model and data to trained weights."""

from mgrade.train.optimiser import parameter_groups

__all__ = ["parameter_groups"]
