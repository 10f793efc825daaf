"""The table of official data agrees with itself."""

from mgrade.tasks.sources import SOURCES


def test_the_table_is_sound():
    for source in SOURCES.values():
        assert source.kind in ("tar.gz", "gz", "file")
        assert all(remote.sha256 is None or len(bytes.fromhex(remote.sha256)) == 32 for remote in source.remotes)
        assert all(remote.address.startswith("https://") for remote in source.remotes)
        assert {need.split("/")[0] for need in source.needs} == set(source.places.values())
