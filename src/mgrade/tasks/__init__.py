"""Tasks: where data comes from, what the model sees, and what counts as right."""

from mgrade.tasks.flipflop import FlipFlop
from mgrade.tasks.highfreq import HighFrequency
from mgrade.tasks.lorenz import Lorenz
from mgrade.tasks.selective_copying import SelectiveCopying
from mgrade.tasks.task import Batch, Part, Task, derive, generator

TASKS: dict[str, type[Task]] = {
    "flipflop": FlipFlop,
    "highfreq": HighFrequency,
    "lorenz": Lorenz,
    "selective-copying": SelectiveCopying,
}

__all__ = ["TASKS", "Batch", "Part", "Task", "derive", "generator"]
