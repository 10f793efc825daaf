"""Files are whole or not there, whoever writes them at the same time."""

from concurrent.futures import ThreadPoolExecutor

from mgrade._files import replace


def test_threads_may_write_one_file(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([letter]) * 20_000 for letter in b"abcd"]
    path.write_bytes(contents[0])

    def write(count):
        replace(path, contents[count % 4])
        return path.read_bytes()

    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(write, range(200)))
    assert set(seen) <= set(contents)
    assert [left.name for left in tmp_path.iterdir()] == ["file"]
