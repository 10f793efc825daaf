"""Figures of the paper that no recipe has: accuracies of published models, and bytes of the small tables.

Bytes of published models on the long-range tasks and on speech are in `mgrade.footprint.published`.
"""

from __future__ import annotations

ARENA = ("listops", "text", "retrieval", "image", "pathfinder")
OWN_LRU = "LRU (the paper's)"

# Table 3, accuracy in per cent by task of ARENA; a dash where the paper has none.
_ARENA_ACCURACY = {
    "S4": "58.4 76.0 87.1 87.3 86.1",
    "S4-LegS": "59.6 86.8 90.9 88.7 94.2",
    "DSS": "60.6 84.8 87.8 85.7 84.6",
    "Liquid-S4": "62.8 89.0 91.2 89.5 94.8",
    "S5": "62.2 89.3 91.4 88.0 95.3",
    "LRU": "60.2 89.4 89.9 - 95.1",
    "Mamba": "38.0 83.0 73.0 70.0 69.0",
    "HGRN": "60.0 88.1 94.2 88.7 92.9",
    "SGConv": "61.5 89.2 91.1 88.0 95.5",
    "MRConv-L": "62.4 89.4 91.5 90.6 96.7",
    OWN_LRU: "58.3 85.9 86.8 84.3 57.4",
    "mGRADE": "61.9 87.3 88.1 87.1 94.9",
}
BOTH_DIRECTIONS = {"S4-LegS": ARENA, "S5": ARENA, "HGRN": ARENA, "LRU": ("pathfinder",)}
# Table 4, accuracy in per cent on 35 words of speech: causal, and seeing both directions.
SPEECH_ACCURACY: dict[str, tuple[float | None, float | None]] = {
    "S4-LegS": (93.6, 96.1),
    "S4-FouT": (91.8, 95.3),
    "S4D-LegS": (93.6, 95.8),
    "S4D-Inv": (93.4, 96.2),
    "S4D-Lin": (93.4, 96.3),
    "Liquid-S4": (96.8, None),
    "S5": (None, 96.5),
    "mGRADE": (94.7, None),
}
# Spiking Heidelberg Digits (appendix): accuracy in per cent, its spread, parameters and buffer in bytes.
SPIKES: dict[str, tuple[float, float | None, str, str | None]] = {
    "SpikCommander": (96.41, None, "760K", None),
    "EventSSM": (95.90, None, "1.6M", None),
    "DCLS (the paper's)": (93.95, 0.72, "800K", "200"),
}
# Selective copying (Table 2): H3, as the paper quotes it.
H3 = (57.0, "664K", "2K")
# Bytes of parameters and buffer, by recipe: Tables 1 and 2, and the appendix on spikes.
BYTES = {
    "lorenz/mgrade": ("1.1K", "128"),
    "lorenz/mingru": ("1.8K", "80"),
    "flipflop/mgrade": ("12K", "384"),
    "flipflop/lru-dcls": ("20K", "384"),
    "flipflop/tcn": ("12K", "64K"),
    "selective-copying/mgrade": ("260K", "68K"),
    "selective-copying/lru-dcls": ("324K", "68K"),
    "selective-copying/tcn": ("320K", "3.2M"),
    "shd/mgrade": ("257.6K", "200"),
}
# The same in Table 5, the ablation, which rounds differently from Table 3.
ABLATION_BYTES = {
    "listops/tcn": ("180K", "16K"),
    "listops/dcls": ("164K", "12K"),
    "listops/mingru": ("160K", "768"),
    "listops/mgrade": ("160K", "12K"),
    "image/tcn": ("2.9M", "880K"),
    "image/dcls": ("2.1M", "880K"),
    "image/mingru": ("2.8M", "3K"),
    "image/mgrade": ("2.7M", "770K"),
    "pathfinder/tcn": ("3.5M", "920K"),
    "pathfinder/dcls": ("2.1M", "960K"),
    "pathfinder/mingru": ("2.5M", "3K"),
    "pathfinder/mgrade": ("2.3M", "770K"),
}


def arena_accuracy(model: str, task: str) -> float | None:
    """Accuracy of a published model on a long-range task, as a share; None where the paper has none."""
    text = _ARENA_ACCURACY[model].split()[ARENA.index(task)]
    return None if text == "-" else float(text) / 100


def arena_models() -> list[str]:
    """The models of Table 3, in its order."""
    return list(_ARENA_ACCURACY)
