"""Images: the official files are read exactly, pixels come in rows, and what is wrong is refused by name."""

import gzip

import numpy as np
import pytest
import torch

from mgrade.nn import Model, ModelConfig
from mgrade.tasks.folder import data_folder
from mgrade.tasks.images import CIFAR_BATCHES, Image, SequentialCifar, SequentialMnist, gray
from mgrade.tasks.rows import at_rows, at_rows_by_chance

CPU = torch.device("cpu")


def cifar(folder, rows=4):
    """Random batches in the binary format; (colours (count, 3, 32, 32), labels) of the training set."""
    here = folder / "cifar-10-batches-bin"
    here.mkdir()
    source = np.random.default_rng(0)
    kept = []
    for name in (*CIFAR_BATCHES["train"], *CIFAR_BATCHES["test"]):
        images = source.integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8)
        labels = source.integers(0, 10, rows, dtype=np.uint8)
        with open(here / name, "wb") as file:
            for image, label in zip(images, labels, strict=True):
                file.write(bytes([label]) + image.tobytes())
        kept.append((images, labels))
    return tuple(map(np.concatenate, zip(*kept[:5], strict=True)))


def idx(path, array, packed=False):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    data = header + array.tobytes()
    path.write_bytes(gzip.compress(data) if packed else data)


def mnist(folder, count=20, packed=False):
    (folder / "mnist").mkdir()
    source = np.random.default_rng(1)
    end = ".gz" if packed else ""
    for part in ("train", "t10k"):
        images = source.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        idx(folder / "mnist" / f"{part}-images-idx3-ubyte{end}", images, packed)
        labels = source.integers(0, 10, count, dtype=np.uint8)
        idx(folder / "mnist" / f"{part}-labels-idx1-ubyte{end}", labels, packed)
    return images, labels


def assert_trains(task):
    """A small model gives finite figures, and a loss with gradients."""
    torch.manual_seed(0)
    model = Model(ModelConfig(dim=4, depth=1, taps=2, max_delay=4, **task.model_fields()))
    batch = tuple(tensor[:4] for tensor in task.examples("train", 0, CPU))
    total, count = task.loss(model, *batch)
    (total / count).backward()
    assert count == 4
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    with torch.no_grad():
        figures = task.judge(model, *batch)
    assert torch.isfinite(figures["surprise"][0])
    assert 0 <= figures["accuracy"][0] <= figures["accuracy"][1] == 4


def test_cifar_comes_row_by_row_with_its_colours(tmp_path):
    images, labels = cifar(tmp_path)
    found = SequentialCifar().read("train", tmp_path)
    assert found.values.shape == (20, 1024, 3)
    assert np.array_equal(found.labels, labels)
    for row, column in ((0, 0), (0, 5), (7, 31), (31, 31)):
        assert np.array_equal(found.values[:, 32 * row + column], images[:, :, row, column])


def test_gray_is_pillows():
    # what Pillow's convert("L") gives for these colours
    colours = [
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
        (255, 255, 255),
        (10, 20, 30),
        (200, 100, 50),
        (1, 1, 1),
        (3, 2, 1),
    ]
    assert gray(np.array(colours, np.uint8).T[None]).tolist() == [[76, 150, 29, 255, 18, 124, 1, 2]]


def test_gray_images_are_the_colour_ones_without_colour(tmp_path):
    images, labels = cifar(tmp_path)
    found = Image().read("train", tmp_path)
    wide = images.astype(float)
    brightness = 0.299 * wide[:, 0] + 0.587 * wide[:, 1] + 0.114 * wide[:, 2]
    assert np.abs(found.values.reshape(-1, 32, 32) - brightness).max() <= 0.51
    assert np.array_equal(found.labels, labels)


def test_the_compact_files_hold_the_same(tmp_path):
    cifar(tmp_path)
    mnist(tmp_path)
    for task, name, side in ((Image(), "cifar10_gray", 32), (SequentialMnist(), "mnist", 28)):
        other = tmp_path / name
        other.mkdir(exist_ok=True)
        sets = {split: task.read(split, tmp_path) for split in ("train", "test")}
        arrays = {f"{split}_images": found.values.reshape(-1, side, side) for split, found in sets.items()}
        arrays |= {f"{split}_labels": found.labels for split, found in sets.items()}
        np.savez(other / f"{name}.npz", **arrays)
        for split, found in sets.items():
            again = task.read(split, other)
            assert np.array_equal(again.values, found.values)
            assert np.array_equal(again.labels, found.labels)


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_read_packed_or_not(tmp_path, packed):
    images, labels = mnist(tmp_path, packed=packed)
    found = SequentialMnist().read("test", tmp_path)
    assert np.array_equal(found.values, images.reshape(-1, 784))
    assert np.array_equal(found.labels, labels)


def test_pixels_are_normalised_by_channel():
    values = torch.tensor([[0, 255, 100]], dtype=torch.uint8)
    expected = (values.double() / 255 - 122.6 / 255) / (61 / 255)
    torch.testing.assert_close(Image().prepare(values)[..., 0].double(), expected, rtol=0, atol=1e-6)
    expected = (values.double() / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(SequentialMnist().prepare(values)[..., 0].double(), expected, rtol=0, atol=1e-6)
    colours = SequentialCifar().prepare(torch.tensor([[[0, 127, 255]]], dtype=torch.uint8))
    expected = (torch.tensor([0.0, 127.0, 255.0]) / 255 - torch.tensor([0.4914, 0.4822, 0.4465])) / torch.tensor(
        [0.247, 0.243, 0.261]
    )
    torch.testing.assert_close(colours[0, 0], expected)


@pytest.mark.parametrize("task", [Image(), SequentialCifar(), SequentialMnist()])
def test_a_tenth_is_held_out_and_a_model_trains(tmp_path, monkeypatch, task):
    cifar(tmp_path)
    mnist(tmp_path)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    sizes = [len(task.examples(split, 0, CPU)[1]) for split in ("train", "validation", "test")]
    assert sizes == [18, 2, 20 if isinstance(task, SequentialMnist) else 4]
    assert task.examples("train", 0, CPU)[0].dtype == torch.uint8
    assert_trains(task)


def test_missing_and_pickled_cifar_are_refused_by_name(tmp_path):
    with pytest.raises(
        ValueError, match=r"no cifar10_gray\.npz and no cifar-10-batches-bin.*mgrade data fetch cifar10"
    ):
        Image().read("train", tmp_path)
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(ValueError, match="pickled and never read; the binary version"):
        SequentialCifar().read("train", tmp_path)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is missing"):
        Image().read("train", tmp_path)


def test_damaged_files_are_refused_by_name(tmp_path):
    cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"test_batch\.bin: its size must be a multiple of 3073 bytes, got 12291"):
        Image().read("test", tmp_path)
    path.write_bytes(bytes([10]) + whole[1:])
    with pytest.raises(ValueError, match=r"test_batch\.bin: row 0: label must be from 0 to 9, got 10"):
        Image().read("test", tmp_path)
    mnist(tmp_path)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="header says 15680 bytes follow, got 15677"):
        SequentialMnist().read("test", tmp_path)
    path.write_bytes(whole[:6])
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte: its header must have 16 bytes, got 6"):
        SequentialMnist().read("test", tmp_path)
    path.write_bytes(b"\0\0\x08\x01" + whole[4:])
    with pytest.raises(ValueError, match="first four bytes must be 0x00000803, got 0x00000801"):
        SequentialMnist().read("test", tmp_path)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(ValueError, match=r"ubyte\.gz cannot be unpacked"):
        SequentialMnist().read("test", tmp_path)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(whole[:4] + bytes(4) + b"\xff" * 8))
    with pytest.raises(ValueError, match=r"ubyte\.gz: its header must have 1 or more along every axis, got \[0, 4294"):
        SequentialMnist().read("test", tmp_path)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(bytes(2**27 + 1), 1))
    with pytest.raises(ValueError, match=r"ubyte\.gz: it unpacks to more than 134217728 bytes, the most allowed"):
        SequentialMnist().read("test", tmp_path)


def test_a_compact_file_of_another_shape_is_refused(tmp_path):
    np.savez(tmp_path / "mnist.npz", test_images=np.zeros((2, 32, 32), np.uint8), test_labels=np.zeros(2))
    with pytest.raises(ValueError, match=r"test_images must be bytes \(28, 28\), got uint8 \(32, 32\)"):
        SequentialMnist().read("test", tmp_path)


@pytest.mark.parametrize(("task", "name", "side"), [(Image(), "cifar10_gray", 32), (SequentialMnist(), "mnist", 28)])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([3, -1], "row 1: label must be from 0 to 9, got -1"),
        ([3, np.nan], "row 1: label must be from 0 to 9, got nan"),
        ([2.5, 3], r"row 0: label must be from 0 to 9, got 2\.5"),
        ([[1], [2]], r"labels must be numbers on one axis, 1 or more, got int64 \(2, 1\)"),
        ([], r"labels must be numbers on one axis, 1 or more, got float64 \(0,\)"),
        ([1, 2, 3], "2 images but 3 labels"),
    ],
)
def test_labels_of_compact_files_are_checked_by_row(tmp_path, task, name, side, labels, message):
    count = len(labels) and 2
    np.savez(tmp_path / f"{name}.npz", test_images=np.zeros((count, side, side), np.uint8), test_labels=labels)
    with pytest.raises(ValueError, match=rf"{name}\.npz: test:? {message}$"):
        task.read("test", tmp_path)


def test_labels_of_mnist_are_checked_by_file_and_row(tmp_path, monkeypatch):
    _, labels = mnist(tmp_path)
    labels[4] = 10
    idx(tmp_path / "mnist" / "t10k-labels-idx1-ubyte", labels)
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte: row 4: label must be from 0 to 9, got 10"):
        SequentialMnist().read("test", tmp_path)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz: row 4: label must be"):
        SequentialMnist().read("test", tmp_path)
    idx(path, labels[:4])
    with pytest.raises(ValueError, match=rf"t10k-labels-idx1-ubyte: {len(labels)} images but 4 labels$"):
        SequentialMnist().read("test", tmp_path)
    path.unlink()
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    path.with_name(f"{path.name}.gz").unlink()
    with pytest.raises(
        ValueError, match=r"is missing; move .*mnist away, then `mgrade data fetch mnist --out .*` gets"
    ):
        SequentialMnist().read("test", tmp_path)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:14])
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte: its header must have 16 bytes, got 14"):
        SequentialMnist().read("test", tmp_path)


@pytest.mark.skipif(not (data_folder() / "mnist.npz").is_file(), reason="needs mnist.npz in MGRADE_DATA")
def test_the_real_digits():
    task = SequentialMnist()
    folder = data_folder()
    assert len(task.read("train", folder).labels) == 60000
    found = task.read("test", folder)
    assert found.values.shape == (10000, 784)
    assert found.labels[:5].tolist() == [7, 2, 1, 0, 4]


@pytest.mark.skipif(
    not (data_folder() / "cifar10_gray.npz").is_file(),
    reason="needs cifar10_gray.npz in MGRADE_DATA",
)
def test_the_real_gray_images_are_around_zero():
    task = Image()
    found = task.read("test", data_folder())
    assert found.values.shape == (10000, 1024)
    assert np.bincount(found.labels).tolist() == [1000] * 10
    values = task.prepare(torch.from_numpy(found.values[:2000]))
    assert abs(values.mean()) < 0.1
    assert 0.9 < values.std() < 1.1


def test_delays_at_whole_rows_are_counted_beside_chance():
    task = Image()
    model = Model(ModelConfig(**task.model_fields(), dim=4, depth=2, taps=4, max_delay=128))
    with torch.no_grad():
        model.layers[0].conv.position.copy_(torch.tensor([32.0, 65.9, 94.0, 0.0]).expand(4, -1))
        model.layers[1].conv.position.fill_(48.0)
    found = task.examine(model, 0, torch.device("cpu"))
    assert found["delays_at_rows"] == 3 / 8
    assert found["delays_at_rows_by_chance"] == (4 + 4 + 4 + 1) / 127
    plain = Model(ModelConfig.mingru(**task.model_fields(), dim=4, depth=1))
    assert task.examine(plain, 0, torch.device("cpu")) == {}


def test_chance_is_what_delays_spread_evenly_would_be():
    for longest, row in ((255, 32), (127, 28), (31, 32), (29, 32), (4095, 128), (1, 32)):
        even = np.linspace(0, longest, 100_001)
        assert abs(at_rows(even, row) - at_rows_by_chance(longest, row)) < 1e-3
    assert at_rows_by_chance(0, 32) == at_rows([], 32) == 0
