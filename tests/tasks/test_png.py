"""Gray PNG images are read to the byte, and damaged or other ones are refused by name."""

import zlib

import numpy as np
import pytest

from images import encode
from mgrade.tasks import _c, png


@pytest.mark.parametrize("library", [_c.LIBRARY, None])
@pytest.mark.parametrize("kinds", [[kind] * 8 for kind in range(5)] + [[4, 3, 2, 1, 0, 4, 3, 1]])
def test_png_filters_are_undone(tmp_path, monkeypatch, library, kinds):
    monkeypatch.setattr(_c, "LIBRARY", library)
    image = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    (tmp_path / "a.png").write_bytes(encode(image, kinds))
    assert np.array_equal(png.read_gray(tmp_path / "a.png", 8), image)


IMAGE = np.arange(64, dtype=np.uint8).reshape(8, 8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GIF89a", "is not a PNG image"),
        (encode(IMAGE)[:60], "is cut short"),
        (encode(IMAGE)[:-12], "is cut short"),
        (encode(IMAGE, kind=(8, 2, 0, 0, 0)), "only PNG in 8-bit gray, not interlaced, is read"),
        (encode(IMAGE, kind=(16, 0, 0, 0, 0)), "only PNG in 8-bit gray, not interlaced, is read"),
        (encode(IMAGE, kind=(8, 0, 0, 0, 1)), "only PNG in 8-bit gray, not interlaced, is read"),
        (encode(IMAGE[:4]), "the image must be 8 x 8, got 8 x 4"),
        (encode(IMAGE, body=bytes(71)), "the pixels must take 72 bytes, got 71"),
        (encode(IMAGE, body=bytes(100)), r"the pixels must take 72 bytes, got 73\+"),
        (encode(IMAGE, body=bytes([7]) + bytes(71)), "a row has filter 7, but PNG has 0 to 4"),
        (encode(IMAGE, packed=b"y\x9c" + zlib.compress(bytes(72))[2:]), "the pixels cannot be unpacked"),
        (encode(IMAGE, packed=zlib.compress(bytes(72))[:-4]), "the packed pixels are cut short"),
    ],
)
def test_other_images_are_refused_by_name(tmp_path, data, message):
    path = tmp_path / "a.png"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"a\.png.*{message}"):
        png.read_gray(path, 8)


def test_no_changed_bit_of_an_image_goes_unnoticed(tmp_path):
    path, whole = tmp_path / "a.png", encode(IMAGE)
    for at in range(len(whole) - 12):  # what ends the file holds nothing
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"a\.png[^\n]*$"):
            png.read_gray(path, 8)
