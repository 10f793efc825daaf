"""Downloads against a server of our own: resumed, compared, unpacked safely, and never half there."""

import gzip

import pytest

from archives import GOOD, assert_nothing, assert_whole, digest, get, serving, tar
from mgrade.tasks import download
from mgrade.tasks.download import fetch
from mgrade.tasks.sources import SOURCES, Remote, Source


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def test_an_archive_is_fetched_compared_and_unpacked(tmp_path):
    told = []
    with serving(a=GOOD) as server:
        places = get(server, tmp_path, progress=lambda *numbers: told.append(numbers))
        assert places == [tmp_path / "cifar-10-batches-bin"]
        assert_whole(tmp_path)
        assert told[-1] == (len(GOOD), len(GOOD))
        assert get(server, tmp_path) == places
        assert len(server.asked) == 1  # what is there is not fetched again


def test_a_cut_connection_is_taken_up_where_it_broke(tmp_path):
    with serving(a=GOOD) as server:
        server.cuts = 3
        get(server, tmp_path)
        half = len(GOOD) // 2
        quarter = half + (len(GOOD) - half) // 2
        assert server.asked[:3] == [None, f"bytes={half}-", f"bytes={quarter}-"]
        assert len(server.asked) == 4
    assert_whole(tmp_path)


def test_a_server_may_answer_with_less_than_was_asked_for(tmp_path):
    told = []
    with serving(a=GOOD) as server:
        server.cuts, server.most = 1, 100
        get(server, tmp_path, progress=lambda *numbers: told.append(numbers))
        assert len(server.asked) == 1 + -(-(len(GOOD) - len(GOOD) // 2) // 100)
        assert {total for _, total in told} == {len(GOOD)}
    assert_whole(tmp_path)


def test_an_answer_without_a_length_may_break_off_too(tmp_path):
    with serving(a=GOOD) as server:
        server.cuts, server.says_length = 3, False
        get(server, tmp_path)
        assert len(server.asked) == 4
    assert_whole(tmp_path)


def test_without_ranges_it_begins_again(tmp_path):
    with serving(a=GOOD) as server:
        server.cuts, server.ranges = 2, False
        get(server, tmp_path)
        assert len(server.asked) == 3
    assert_whole(tmp_path)


def test_a_download_of_another_day_is_gone_on_with(tmp_path):
    with serving(a=GOOD) as server:
        server.cuts, server.ranges = 99, False
        with pytest.raises(
            ValueError, match=f"the connection was closed early, 5 times in a row; {len(GOOD) // 2} bytes"
        ):
            get(server, tmp_path)
        assert_nothing(tmp_path, but=["a.part"])
        server.cuts, server.ranges, server.asked = 0, True, []
        get(server, tmp_path)
        assert server.asked == [f"bytes={len(GOOD) // 2}-"]
    assert_whole(tmp_path)


@pytest.mark.parametrize("more", [b"", b"too long"])
def test_a_download_that_was_whole_already(tmp_path, more):
    part = tmp_path / "a.part"
    part.write_bytes(GOOD + more)
    with serving(a=GOOD) as server:
        download.download(f"{server.address}/a", part, limit=2**30, pause=0)
        assert part.read_bytes() == GOOD
        assert len(server.asked) == (2 if more else 1)


def test_a_server_in_trouble_is_asked_again_and_a_missing_file_is_not(tmp_path):
    with serving(a=GOOD) as server:
        server.failures = 4
        get(server, tmp_path)
        assert len(server.asked) == 5
        server.asked = []
        with pytest.raises(ValueError, match="/b: HTTP status 404 Not Found"):
            fetch("imdb", tmp_path, f"{server.address}/b", pause=0)
        assert len(server.asked) == 1
        server.failures = 99
        with pytest.raises(ValueError, match="HTTP status 503 Service Unavailable, 5 times in a row"):
            fetch("imdb", tmp_path, f"{server.address}/b", pause=0)


def test_a_disk_that_takes_no_more_is_not_taken_for_the_network(tmp_path):
    with serving(a=GOOD) as server:
        part = tmp_path / "part"
        part.mkdir()
        with pytest.raises(ValueError, match=f"^{part} cannot be written: Is a directory$"):
            download.download(f"{server.address}/a", part, limit=2**30, pause=100)
    assert len(server.asked) == 1


def test_nobody_there_is_one_line(tmp_path):
    with serving() as server:
        address = server.address
    with pytest.raises(ValueError, match=r"Connection refused, 5 times in a row$") as refusal:
        fetch("cifar10", tmp_path, f"{address}/a", pause=0)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_a_wrong_digest_is_refused_and_thrown_away(tmp_path):
    with serving(a=GOOD) as server:
        with pytest.raises(
            ValueError, match=f"SHA-256 must be {SOURCES['cifar10'].remotes[0].sha256}, got {digest(GOOD)}"
        ):
            fetch("cifar10", tmp_path, f"{server.address}/a", pause=0)
        assert_nothing(tmp_path)


def test_too_much_is_refused(tmp_path):
    with (
        serving(a=GOOD) as server,
        pytest.raises(ValueError, match=f"at most 100 bytes, the server announces {len(GOOD)}"),
    ):
        download.download(f"{server.address}/a", tmp_path / "part", limit=100, pause=0)


def test_several_files_come_from_one_folder_and_stay_packed(tmp_path, monkeypatch):
    names = [remote.name for remote in SOURCES["mnist"].remotes]
    files = {name: gzip.compress(name.encode()) for name in names}
    remotes = tuple(Remote(f"https://x/{name}", digest(data)) for name, data in files.items())
    monkeypatch.setitem(SOURCES, "mnist", Source(**{**vars(SOURCES["mnist"]), "remotes": remotes}))
    with serving(**files) as server:
        (place,) = fetch("mnist", tmp_path, server.address + "/", pause=0)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == files
    assert not SOURCES["mnist"].missing(tmp_path)


def test_an_unknown_digest_is_said(tmp_path):
    files = {f"shd_{part}.h5.gz": gzip.compress(part.encode()) for part in ("train", "test")}
    said = []
    with serving(**files) as server:
        (place,) = fetch("shd", tmp_path, server.address, say=said.append, pause=0)
    assert (place / "shd_train.h5").read_bytes() == b"train"
    assert len(said) == 2
    assert said[0].startswith(f"shd_train.h5.gz: SHA-256 {digest(files['shd_train.h5.gz'])}; not compared")


@pytest.mark.parametrize("wrap", ["lra_release/lra_release/", "lra_release/", ""])
def test_folders_of_the_long_range_arena_go_where_tasks_read_them(tmp_path, wrap):
    inside = {place: name for name, place in SOURCES["lra"].places.items()}
    needs = [need.split("/", 1) for need in SOURCES["lra"].needs]
    members = [
        (f"{inside[place]}/{rest}/x" if "curv" in rest else f"{inside[place]}/{rest}", b"x") for place, rest in needs
    ]
    data = tar([*members, ("pathfinder64/much", b"x"), ("README", b"x")], wrap=wrap)
    with serving(a=data) as server:
        fetch("lra", tmp_path, f"{server.address}/a", digest(data), pause=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aan", "listops", "pathfinder128", "pathfinder32"]
    assert not SOURCES["lra"].missing(tmp_path)


def test_the_spoken_digits_lie_where_the_task_reads_them(tmp_path):
    members = [("README.md", b"x"), ("recordings/0_theo_0.wav", b"x"), ("utils/fsdd.py", b"x")]
    data = tar(members, wrap="free-spoken-digit-dataset-1.0.10/")
    with serving(a=data) as server:
        fetch("fsdd", tmp_path, f"{server.address}/a", digest(data), pause=0)
    assert (tmp_path / "fsdd" / "recordings" / "0_theo_0.wav").read_bytes() == b"x"
    assert not SOURCES["fsdd"].missing(tmp_path)


def test_an_archive_of_nothing_but_what_is_needed_is_whole(tmp_path):
    data = tar([("recordings/0_theo_0.wav", b"x")], wrap="")
    with serving(a=data) as server:
        fetch("fsdd", tmp_path, f"{server.address}/a", digest(data), pause=0)
    assert (tmp_path / "fsdd" / "recordings" / "0_theo_0.wav").read_bytes() == b"x"


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is not; move it away"):
        fetch("cifar10", tmp_path)
    with download._workshop("imdb", tmp_path), pytest.raises(ValueError, match="another process is fetching imdb"):
        fetch("imdb", tmp_path)


def test_wrong_arguments_are_refused_by_name(tmp_path):
    for arguments, message in (
        (("cifar",), "name must be one of cifar10, mnist, imdb, lra, speech_commands, shd, fsdd, got 'cifar'"),
        (
            ("cifar10", tmp_path, "file:///etc/passwd"),
            "address must be ASCII and begin with http:// or https:// and a host",
        ),
        (("cifar10", tmp_path, "http://"), "address must be ASCII and begin with http:// or https:// and a host"),
        (("cifar10", tmp_path, "http://[::1/x"), "address must be ASCII and begin with http:// or https:// and a host"),
        (("cifar10", tmp_path, "http://a:b/x"), "address must be ASCII and begin with http:// or https:// and a host"),
        (("cifar10", tmp_path, "http://user:word@127.0.0.1/x"), "and a host, without a user, "),
        (("cifar10", tmp_path, "http://a/x y"), "without a user, got 'http://a/x y'"),
        (("cifar10", tmp_path, "http://ä/x"), "without a user, got 'http://ä/x'"),
        (("cifar10", tmp_path, "http://a..b/x"), "^http://a..b/x cannot be opened: "),
        (("cifar10", tmp_path, None, "abc"), "sha256 must be 64 hexadecimal digits, got 'abc'"),
        (("mnist", tmp_path, None, "a" * 64), "sha256 must be left out for mnist, which has 4 files"),
    ):
        with pytest.raises(ValueError, match=message):
            fetch(*(arguments if len(arguments) > 1 else (*arguments, tmp_path)))
