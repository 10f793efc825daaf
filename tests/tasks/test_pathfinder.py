"""Pathfinder images are generated as published, whatever the range and threads, and read from both layouts."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from images import encode
from mgrade.tasks import _c, pathfinder
from mgrade.tasks.pathfinder import Pathfinder, file_name, generate_set
from mgrade.tasks.pathfinder_images import PATH32, PATHX, Settings, generate, generate_counted, paddle

# Further sizes of the published generator.
PATH64 = Settings(
    canvas=64, paddle_thickness=1.0, seed_distance=12, marker_radius=2.5, distractors=5, snake_contrast=0.8
)
PATH256 = Settings(
    canvas=256,
    paddle_thickness=2.0,
    margins=(3,),
    padding=22,
    seed_distance=27,
    marker_radius=5.0,
    distractors=7,
    snake_contrast=1.0,
)

needs_c = pytest.mark.skipif(_c.LIBRARY is None, reason="no C compiler")


@pytest.fixture(scope="module")
def many():
    return generate_counted(PATH32, 1, 0, 1500)


@needs_c
def test_an_image_depends_on_seed_and_index_alone():
    images, labels = generate(PATH32, 5, 0, 40, threads=1)
    for threads, begin, end in ((1, 0, 40), (3, 0, 40), (2, 7, 30), (1, 39, 40), (2, 4, 4)):
        again, marks = generate(PATH32, 5, begin, end, threads=threads)
        assert np.array_equal(again, images[begin:end])
        assert np.array_equal(marks, labels[begin:end])
    assert len(np.unique(images.reshape(40, -1), axis=0)) == 40
    assert not np.array_equal(generate(PATH32, 6, 0, 1)[0], images[:1])


def close(found, expected, deviation, count):
    """Within four standard errors of an expected value, itself measured on 2000 images."""
    assert abs(found - expected) < 4 * deviation * math.sqrt(1 / count + 1 / 2000)


@needs_c
def test_images_have_the_published_generators_statistics(many):
    """The expected figures were measured with a separate prototype in Python, Pillow and OpenCV."""
    images, _, counts = many
    count = len(images)
    share = images / 255
    for figure, expected, rounding in (
        (share, 0.079, 0.0005),
        (share**2, 0.079**2 + 0.200**2, 0.0003),
        (images > 0, 0.342, 0.0005),
        (images > 127, 0.085, 0.0005),
    ):
        each = figure.mean((1, 2))
        error = 4 * each.std() * math.sqrt(1 / count + 1 / 2000) + rounding
        assert abs(each.mean() - expected) < error
    close(counts[:, 0].mean(), 318, 318, count)
    for number, expected in enumerate(np.array([529, 791, 508, 152, 20]) / 2000):
        found = (counts[:, 1] == number if number < 4 else counts[:, 1] >= 4).mean()
        close(found, expected, math.sqrt(expected * (1 - expected)), count)


@needs_c
def test_both_labels_are_as_frequent(many):
    _, labels, _ = many
    assert set(labels.tolist()) == {0, 1}
    close(labels.mean(), 0.5, 0.5, len(labels))


@needs_c
@pytest.mark.parametrize(("settings", "wide"), [(PATH32, 2), (PATH64, 4), (PATHX, 4), (PATH256, 7)])
def test_images_are_scaled_to_bytes_and_have_two_markers(settings, wide):
    images, _ = generate(settings, 2, 0, 8)
    assert images.shape == (8, settings.canvas, settings.canvas)
    assert (images.min((1, 2)) == 0).all()
    assert (images.max((1, 2)) == 255).all()
    plain, _ = generate(replace(settings, marker_radius=0.1), 2, 0, 8)
    assert (bright_squares(images, wide) - bright_squares(plain, wide) >= 2).all()


def bright_squares(images, wide):
    """How many squares are bright all over, in each image; paddles are thinner than that."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (wide, wide), axis=(1, 2))
    return (windows > 170).all((-2, -1)).sum((1, 2))


@needs_c
def test_the_longer_the_snakes_the_more_ink():
    short, long = (generate(PATHX.with_length(length), 0, 0, 5)[0].mean() for length in (6, 14))
    assert short < 0.7 * long


@needs_c
@pytest.mark.parametrize("settings", [PATH32, PATH64, PATHX, PATH256])
def test_paddles_are_pillows_to_the_bit(settings):
    image, draw = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageDraw")
    degrees = np.arange(-180, 180) * np.pi / 180
    for margin, angle in itertools.product(settings.margins, degrees):
        scale, reach = settings.antialias, settings.reach(margin)
        middle = reach * scale
        length = settings.paddle_length * scale
        head = (math.ceil(middle + length * math.cos(angle)), math.ceil(middle + length * math.sin(angle)))
        large = image.new("L", (2 * middle + 1, 2 * middle + 1))
        draw.Draw(large).line([(middle, middle), head], fill=255, width=round(settings.paddle_thickness * scale))
        sizes = (2 * reach + 1, 2 * reach + 1)
        line, mask = paddle(settings, margin, angle)
        assert np.array_equal(line, np.array(large.resize(sizes, image.Resampling.LANCZOS)))
        wide = image.fromarray(dilated(np.array(large), margin * scale))
        assert np.array_equal(mask, np.array(wide.resize(sizes, image.Resampling.LANCZOS)))


def dilated(picture, radius):
    """The largest value within a distance."""
    padded = np.pad(picture, radius)
    side = len(picture)
    offsets = itertools.product(range(-radius, radius + 1), repeat=2)
    near = [(y + radius, x + radius) for y, x in offsets if x * x + y * y <= radius * radius]
    return np.max([padded[y : y + side, x : x + side] for y, x in near], axis=0)


@needs_c
def test_a_paddle_along_the_rows_is_a_blurred_dash():
    line, mask = paddle(PATH32, 1, 0.0)
    assert line.shape == mask.shape == (9, 9)
    assert (line[4, 4:7] > 100).all()
    assert not line[[0, 1, 2, 3, 5, 6, 7, 8]].any()
    assert not line[:, :2].any()
    assert (mask[4, 4:7] == 255).all()
    assert (mask[[3, 5], 4:7] > 150).all()


@needs_c
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canvas": 8}, "canvas must be at least 9 for such paddles, got 8"),
        ({"canvas": 2000}, "canvas must be at most 1024, got 2000"),
        ({"margins": ()}, r"margins must be 1 to 4 numbers of at least 1, got \(\)"),
        ({"paddle_thickness": 0.3}, "paddle_thickness must be a multiple of 1/2, got 0.3"),
        ({"continuity": 0}, "continuity must be a number above 0, got 0"),
        ({"distractors": -1}, "distractors must be a whole number from 0 to 1000, got -1"),
        ({"seed_distance": 0}, "seed_distance must be a whole number of at least 1, got 0"),
        ({"seed_distance": 16}, "two snakes of contour_length 14 do not fit a canvas of 32"),
    ],
)
def test_settings_that_cannot_be_drawn_are_refused(options, message):
    fields = {name: getattr(PATH32, name) for name in PATH32.__dataclass_fields__}
    with pytest.raises(ValueError, match=message):
        generate(type(PATH32)(**{**fields, **options}), 0, 0, 1)


@needs_c
def test_a_range_out_of_order_is_refused():
    with pytest.raises(ValueError, match="begin and end must be at least 0 and in order, got 3, 2"):
        generate(PATH32, 0, 3, 2)
    with pytest.raises(ValueError, match="seed must be from 0 to 18446744073709551615, got 18446744073709551616"):
        generate(PATH32, 1 << 64, 0, 1)


def test_without_the_c_generator_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(_c, "LIBRARY", None)
    with pytest.raises(ValueError, match="pathfinder needs the C generator: reinstall mgrade with a C compiler"):
        generate_set(tmp_path / "pathfinder32.npz", seed=0, count=10)


@needs_c
def test_a_generated_set_is_divided_into_three_parts(tmp_path):
    told = []
    path = tmp_path / "new" / file_name()
    generate_set(path, seed=4, count=1040, progress=lambda done, total: told.append((done, total)))
    assert [item.name for item in path.parent.iterdir()] == ["pathfinder32.npz"]
    assert told == [(1000, 1040), (1040, 1040)]
    images, labels = generate(PATH32, 4, 0, 1040)
    whole = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    parts = {split: Pathfinder().read(split, path.parent) for split in ("train", "validation", "test")}
    assert {split: part.values.shape for split, part in parts.items()} == {
        "train": (832, 1024),
        "validation": (104, 1024),
        "test": (104, 1024),
    }
    found = [(row.tobytes(), label) for part in parts.values() for row, label in zip(*part[:2], strict=True)]
    assert len(found) == len(whole)
    assert dict(found) == whole


@needs_c
def test_examples_are_bytes_until_they_are_prepared(tmp_path, monkeypatch):
    generate_set(tmp_path / file_name(32, 6), seed=0, count=20, contour_length=6)
    monkeypatch.setenv("MGRADE_DATA", str(tmp_path))
    task = Pathfinder(contour_length=6)
    values, labels = task.examples("validation", 0, torch.device("cpu"))
    assert values.dtype == torch.uint8
    assert labels.dtype == torch.int64
    ready = task.prepare(values)
    assert ready.shape == (2, 1024, 1)
    assert ready.dtype == torch.float32
    assert ready.min() == -1
    assert ready.max() == 1
    assert task.model_fields() == {"inputs": 1, "outputs": 2, "tokens": False, "readout": "mean"}
    assert task.classes == 2


def official(folder, count=24, size=32, empty=()):
    """A folder as the Long Range Arena has it: two lists, `count` images in all; returns pixels and labels by file."""
    here = folder / f"pathfinder{size}" / "curv_contour_length_14"
    (here / "metadata").mkdir(parents=True)
    source, known = np.random.default_rng(1), {}
    for part in range(2):
        (here / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for number in range(count // 2):
            image, label = source.integers(0, 256, (size, size), np.uint8), int(source.integers(2))
            path = here / "imgs" / str(part) / f"sample_{number}.png"
            path.write_bytes(b"" if (part, number) in empty else encode(image))
            lines.append(f"imgs/{part} {path.name} {number} {label} 1.0 14 4 2 0.5 1 1\n")
            if (part, number) not in empty:
                known[image.tobytes()] = label
        (here / "metadata" / f"{part}.npy").write_text("".join(lines))
    return here, known


@pytest.mark.parametrize("size", [32, 128])
def test_the_official_folder_is_read_without_empty_images(tmp_path, size):
    _, known = official(tmp_path, size=size, empty={(1, 3)})
    task = Pathfinder(size=size)
    parts = [task.read(split, tmp_path) for split in ("train", "validation", "test")]
    assert [part.values.shape for part in parts] == [(19, size**2), (2, size**2), (2, size**2)]
    found = {row.tobytes(): label for part in parts for row, label in zip(*part[:2], strict=True)}
    assert found == known


def test_the_way_to_the_data_may_lead_upwards(tmp_path):
    _, known = official(tmp_path / "data")
    (tmp_path / "here").mkdir()
    part = Pathfinder().read("train", tmp_path / "here" / ".." / "data")
    assert 0 < len(part.labels) < len(known)


def test_a_damaged_official_folder_is_refused(tmp_path):
    here, _ = official(tmp_path)

    def refused(message):
        with pytest.raises(ValueError, match=message) as error:
            Pathfinder().read("train", tmp_path)
        assert "\n" not in str(error.value)

    table = here / "metadata" / "1.npy"
    good = table.read_text()
    for bad, message in (
        (good + "imgs/1 sample_0.png 0\n", r"1\.npy: line 13 must be folder, file, index, label 0 or 1, …, got 'imgs"),
        (good + "x" * 9999 + "\n", r"1\.npy: line 13 must be folder, file, index, label 0 or 1, …, got 'x{80}'$"),
        (good + "imgs/1 sample_0.png 0 2\n", r"1\.npy: line 13 must be folder, file, index, label"),
        (good + "imgs/1 sample_99.png 0 1\n", r"1\.npy: line 13: .*sample_99\.png is missing"),
        (good + "imgs/0 sample_3.png 0 1\n", r"1\.npy: line 13: .*0/sample_3\.png is named twice"),
        (good + "imgs/../imgs/0 sample_3.png 0 1\n", r"1\.npy: line 13: .*sample_3\.png lies outside .*length_14"),
        (good + f"{tmp_path} sample_3.png 0 1\n", r"1\.npy: line 13: .*sample_3\.png lies outside .*length_14"),
    ):
        table.write_text(bad)
        refused(message)
    table.write_bytes(b"\x93NUMPY\x01\x00")
    refused(r"1\.npy must be lines of text")
    table.write_text(good)
    for image in (here / "imgs" / "0").iterdir():
        image.write_bytes(b"no image")
    refused(r"sample_\d+\.png is not a PNG image")
    table.unlink()
    (here / "metadata" / "0.npy").unlink()
    refused("curv_contour_length_14 has no metadata")


def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path):
    for options, name, command in (
        ({}, "pathfinder32", "pathfinder"),
        ({"contour_length": 9}, "pathfinder32-9", "pathfinder --contour-length 9"),
        ({"size": 128}, "pathfinder128", "pathx"),
        ({"size": 128, "contour_length": 6}, "pathfinder128-6", "pathx --contour-length 6"),
    ):
        message = rf"nor {name}\.npz: run `mgrade data generate {command} --out {re.escape(str(tmp_path))}`$"
        with pytest.raises(ValueError, match=message):
            Pathfinder(**options).read("train", tmp_path)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"images": np.zeros((10, 32, 32), np.uint8)}, "has no array 'labels'"),
        (
            {"images": np.zeros((10, 8, 8), np.uint8), "labels": np.zeros(10)},
            r"images must be bytes \(32, 32\), got ui",
        ),
        ({"images": np.zeros((10, 32, 32)), "labels": np.zeros(10)}, r"images must be bytes \(32, 32\), got float64"),
        ({"images": np.zeros((10, 32, 32), np.uint8), "labels": np.zeros(9)}, r"10 images but labels of shape \(9,\)"),
        ({"images": np.zeros((9, 32, 32), np.uint8), "labels": np.zeros(9)}, "at least 10 images, got 9"),
        (
            {"images": np.zeros((10, 32, 32), np.uint8), "labels": np.arange(10)},
            "row 2: label must be from 0 to 1, got 2",
        ),
    ],
)
def test_a_damaged_set_is_refused(tmp_path, contents, message):
    np.savez(tmp_path / "pathfinder32.npz", **contents)
    with pytest.raises(ValueError, match=rf"pathfinder32\.npz.*{message}"):
        Pathfinder().read("train", tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "pathfinder32.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"pathfinder32\.npz cannot be read"):
        Pathfinder().read("train", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 64}, "size must be 32 or 128, got 64"),
        ({"size": 32.0}, r"size must be 32 or 128, got 32\.0"),
        ({"size": [32]}, r"size must be 32 or 128, got \[32\]"),
        ({"contour_length": 7}, "contour_length must be 6, 9 or 14, got 7"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Pathfinder(**options)
    with pytest.raises(ValueError, match=message):
        generate_set(pathfinder.Path("nowhere") / "a.npz", seed=0, **options)
