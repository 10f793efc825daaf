"""Recipes so small that a run takes a second."""

from mgrade.train import load_recipe

SETTINGS = (
    "model.dim=8",
    "task.length=32",
    "task.validation=20",
    "task.test=30",
    "task.recalls=2",
    "train.steps=40",
    "train.batch=8",
    "train.evaluations=4",
)


def small(name="flipflop/mgrade", *more):
    return load_recipe(name, (*SETTINGS, *more))
