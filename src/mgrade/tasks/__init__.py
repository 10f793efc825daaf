"""Tasks: where data comes from, what the model sees, and what counts as right."""

from mgrade.tasks.digits import SpokenDigits
from mgrade.tasks.flipflop import FlipFlop
from mgrade.tasks.folder import data_folder
from mgrade.tasks.highfreq import HighFrequency
from mgrade.tasks.images import Image, SequentialCifar, SequentialMnist
from mgrade.tasks.labelled import Labelled, Sequences
from mgrade.tasks.listops import ListOps
from mgrade.tasks.lorenz import Lorenz
from mgrade.tasks.pathfinder import Pathfinder
from mgrade.tasks.retrieval import Retrieval
from mgrade.tasks.selective_copying import SelectiveCopying
from mgrade.tasks.series import Motions, Vowels
from mgrade.tasks.speech import Speech
from mgrade.tasks.spikes import HeidelbergDigits
from mgrade.tasks.task import Batch, Drawn, Part, Task, derive, generator
from mgrade.tasks.text import Text

TASKS: dict[str, type[Task]] = {
    "flipflop": FlipFlop,
    "fsdd": SpokenDigits,
    "highfreq": HighFrequency,
    "image": Image,
    "listops": ListOps,
    "lorenz": Lorenz,
    "motions": Motions,
    "pathfinder": Pathfinder,
    "retrieval": Retrieval,
    "scifar": SequentialCifar,
    "selective-copying": SelectiveCopying,
    "shd": HeidelbergDigits,
    "smnist": SequentialMnist,
    "speech": Speech,
    "text": Text,
    "vowels": Vowels,
}

__all__ = ["TASKS", "Batch", "Drawn", "Labelled", "Part", "Sequences", "Task", "data_folder", "derive", "generator"]
