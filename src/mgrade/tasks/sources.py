"""The sources of official data: addresses, digests, and the places where tasks read their files.

The table has a digest only if it is published and known for certain.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_GIB = 2**30


@dataclass(frozen=True)
class Remote:
    """A file to download, and its SHA-256 if known."""

    address: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urllib.parse.urlsplit(self.address).path).name


@dataclass(frozen=True)
class Source:
    """Files that belong together, and their places in the data folder."""

    title: str
    remotes: tuple[Remote, ...]
    kind: str
    """`tar.gz` (unpacked, without enclosing folders), `gz` (unpacked) or `file` (unchanged)."""
    places: dict[str, str]
    """Unpacked folders and their names in the data folder; `` stands for everything unpacked."""
    needs: tuple[str, ...]
    """The files that tasks read, as paths in the data folder; gzipped ones count, too."""
    limit: int
    """The most bytes of a download, and of its unpacked content."""
    compact: tuple[str, ...] = ()
    """Files of the data folder that tasks read instead."""
    compact_for: str | None = None
    """The only task that reads them, if others cannot."""

    def missing(self, folder: Path, place: str = "") -> list[str]:
        """The needed files that are missing, in one place or in all."""
        needs = [need for need in self.needs if need.startswith(place)]
        return [need for need in needs if not any((folder / f"{need}{end}").exists() for end in ("", ".gz"))]

    def in_the_way(self, folder: Path) -> list[Path]:
        """Existing but incomplete places, which keep the source from being fetched."""
        places = [place for place in self.places.values() if self.missing(folder, f"{place}/")]
        return [folder / place for place in places if (folder / place).exists()]


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_SPEECH = "https://storage.googleapis.com/download.tensorflow.org/data/"
_IMDB = "https://ai.stanford.edu/~amaas/data/sentiment/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_LRA = "https://storage.googleapis.com/long-range-arena/"
_SHD = "https://zenkelab.org/datasets/"
_FSDD = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/"

SOURCES: dict[str, Source] = {
    "cifar10": Source(
        title="CIFAR-10, binary version",
        remotes=(
            Remote(
                _CIFAR + "cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        kind="tar.gz",
        places={"": "cifar-10-batches-bin"},
        needs=tuple(
            f"cifar-10-batches-bin/{name}.bin"
            for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
        ),
        limit=_GIB,
        compact=("cifar10_gray.npz",),
        compact_for="image",
    ),
    "mnist": Source(
        title="MNIST handwritten digits",
        remotes=(
            Remote(
                _MNIST + "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            Remote(
                _MNIST + "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            Remote(
                _MNIST + "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            Remote(
                _MNIST + "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        kind="file",
        places={"": "mnist"},
        needs=tuple(
            f"mnist/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
        ),
        limit=_GIB // 8,
        compact=("mnist.npz",),
    ),
    "imdb": Source(
        title="Large Movie Review Dataset (IMDB)",
        remotes=(
            Remote(_IMDB + "aclImdb_v1.tar.gz", "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),
        ),
        kind="tar.gz",
        places={"": "aclImdb"},
        needs=tuple(f"aclImdb/{part}/{label}" for part in ("train", "test") for label in ("pos", "neg")),
        limit=4 * _GIB,
        compact=("imdb.npz",),
    ),
    "lra": Source(
        title="Long Range Arena: ListOps, Retrieval (AAN), Pathfinder, Path-X",
        remotes=(Remote(_LRA + "lra_release.gz"),),
        kind="tar.gz",
        places={
            "listops-1000": "listops",
            "tsv_data": "aan",
            "pathfinder32": "pathfinder32",
            "pathfinder128": "pathfinder128",
        },
        needs=(
            *(f"listops/basic_{part}.tsv" for part in ("train", "val", "test")),
            *(f"aan/new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")),
            *(f"pathfinder{size}/curv_contour_length_14" for size in (32, 128)),
        ),
        limit=64 * _GIB,
    ),
    "speech_commands": Source(
        title="Speech Commands v0.02, 35 words",
        remotes=(
            Remote(
                _SPEECH + "speech_commands_v0.02.tar.gz",
                "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            ),
        ),
        kind="tar.gz",
        places={"": "speech_commands"},
        needs=tuple(
            f"speech_commands/{name}" for name in ("validation_list.txt", "testing_list.txt", "backward", "yes", "zero")
        ),
        limit=8 * _GIB,
        compact=("speech10_train.npz", "speech10_val_test.npz"),
        compact_for="speech10",
    ),
    "shd": Source(
        title="Spiking Heidelberg Digits",
        remotes=(Remote(_SHD + "shd_train.h5.gz"), Remote(_SHD + "shd_test.h5.gz")),
        kind="gz",
        places={"": "shd"},
        needs=("shd/shd_train.h5", "shd/shd_test.h5"),
        limit=4 * _GIB,
    ),
    "fsdd": Source(
        title="Free Spoken Digit Dataset v1.0.10",
        remotes=(Remote(_FSDD + "v1.0.10.tar.gz"),),
        kind="tar.gz",
        places={"": "fsdd"},
        needs=("fsdd/recordings",),
        limit=_GIB,
        compact=("fsdd_8k.npz",),
    ),
}
