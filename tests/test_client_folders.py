"""`python -m client classify` over many images: what it finds, writes, and makes of runs that are broken off."""

import collections
import csv
import io
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from client.command_line.formats import Csv, JsonLines
from client.command_line.options import UsageError
from client.command_line.sources import Sources
from client.errors import DeadlineError, ImageError
from client.results import ClassScore, ImageResult
from server.options import ServerOptions
from server.process import TritonServer
from tests.asking import ask
from tests.running import child, grpc_url, http_url, processes_of, server_options

COMMAND = [sys.executable, "-m", "client", "classify"]
PHOTOS = ("coffee.png", "chelsea.png", "rocket.jpg", "camera.png")
SMALL = (120, 90)  # pixels, so that thousands are soon classified


def classify(*arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def folder(tmp_path: Path, photos: Path) -> Path:
    """Photographs in a folder and below, with other files among them."""
    result = tmp_path / "photos"
    (result / "below" / "deeper").mkdir(parents=True)
    (result / "b.png").symlink_to(photos / "coffee.png")
    (result / "a.PNG").symlink_to(photos / "chelsea.png")
    (result / "below" / "deeper" / "c.jpg").symlink_to(photos / "rocket.jpg")
    (result / "below" / "notes.txt").write_text("no image")
    (result / "bad.jpg").write_bytes(b"no image")
    return result


def linked(photos: Path, folder: Path, count: int) -> Path:
    """A folder of `count` links to small copies of photographs, in turn."""
    folder.mkdir()
    originals = folder.with_name("originals")
    originals.mkdir()
    for name in PHOTOS:
        with Image.open(photos / name) as photo:
            photo.convert("RGB").resize(SMALL).save(originals / f"{Path(name).stem}.jpg")
    for number, original in enumerate(itertools.islice(itertools.cycle(sorted(originals.iterdir())), count)):
        (folder / f"{number:05}_{original.name}").symlink_to(original)
    return folder


def expected_class_ids(server: TritonServer, folder: Path) -> dict[str, list[int]]:
    """By tritonclient, one photograph a request."""
    originals = folder.with_name("originals").iterdir()
    return {path.name: ask(server, "grpc", [path.read_bytes()])["class_id"][0].tolist() for path in originals}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_complete(rows: list[dict[str, Any]], folder: Path, expected: dict[str, list[int]]) -> None:
    """Every file of the folder has exactly one result, and it is the right one."""
    counts = collections.Counter(row["image"] for row in rows)
    assert counts == dict.fromkeys(map(str, folder.iterdir()), 1)
    assert [row["error"] for row in rows if row["error"]] == []
    for row in rows:
        assert [one["class_id"] for one in row["classes"]] == expected[row["image"].split("_")[-1]], row


# What is found


def names(*arguments: str | Path) -> list[str]:
    return [source.name for source in Sources([str(argument) for argument in arguments])]


def test_a_folder_gives_its_images_and_those_below(folder: Path) -> None:
    assert names(folder) == [str(folder / name) for name in ("a.PNG", "b.png", "bad.jpg", "below/deeper/c.jpg")]


def test_a_pipe_in_a_folder_is_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jpg")
    (folder / "also.jpg").symlink_to(folder / "pipe.jpg")
    (folder / "broken.jpg").symlink_to(folder / "absent")
    found = [Path(name).name for name in names(folder)]
    assert found == ["a.PNG", "b.png", "bad.jpg", "broken.jpg", "c.jpg"]


def test_a_file_that_is_named_may_be_called_anything(folder: Path) -> None:
    assert names(folder / "below" / "notes.txt", "absent.jpg") == [str(folder / "below" / "notes.txt"), "absent.jpg"]


def test_a_glob_finds_files_and_folders(folder: Path) -> None:
    assert names(folder / "*.png") == [str(folder / "b.png")]
    assert names(folder / "**" / "*.jpg") == [str(folder / "bad.jpg"), str(folder / "below/deeper/c.jpg")]
    assert names(folder / "bel*") == [str(folder / "below/deeper/c.jpg")]
    with pytest.raises(UsageError, match=r"expected a pattern that finds files, it finds none"):
        names(folder / "*.tiff")


def test_what_is_named_twice_is_given_once(folder: Path) -> None:
    assert names(folder / "b.png", folder, folder / "*.png") == [
        str(folder / name) for name in ("b.png", "a.PNG", "bad.jpg", "below/deeper/c.jpg")
    ]
    everything = names(folder / "**")  # a folder, and what is in it
    assert sorted(set(everything)) == sorted(everything)
    assert set(names(folder)) < set(everything)


def test_a_linked_folder_is_left_out_and_counted(folder: Path) -> None:
    before = names(folder)
    (folder / "circle").symlink_to(folder)
    sources = Sources([str(folder)])
    assert [source.name for source in sources] == before
    assert sources.left_out == 2  # notes.txt, circle


def test_a_folder_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its images must not be missing from the results without a word; root may read whatever chmod forbids."""

    def scan(path: str) -> Any:
        if Path(path).name == "deeper":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(UsageError, match=r"below/deeper: expected a folder that can be read, got: Permission denied"):
        names(folder)


def test_a_name_with_brackets_is_a_name_where_such_a_file_is(folder: Path) -> None:
    (folder / "[1].png").symlink_to(folder / "b.png")
    assert names(folder / "[1].png") == [str(folder / "[1].png")]


def test_a_file_url(folder: Path) -> None:
    spaced = folder / "with space.png"
    spaced.symlink_to(folder / "b.png")
    assert names(spaced.as_uri(), (folder / "below").as_uri()) == [str(spaced), *names(folder / "below")]
    for url in ("http://127.0.0.1/a.png", "file://elsewhere/a.png"):
        with pytest.raises(UsageError, match="expected a file:// URL of this machine"):
            names(url)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/photos/x/../a.jpg"], ["photos/x/a.jpg"]),
        (["../a.jpg", "b/c.jpg"], ["a.jpg", "b/c.jpg"]),
    ],
    ids=["absolute", "relative"],
)
def test_where_copies_go(arguments: list[str], expected: list[str]) -> None:
    assert [str(source.relative) for source in Sources(arguments)] == expected


def test_where_copies_of_one_folder_go(folder: Path) -> None:
    copies = [str(source.relative) for source in Sources([str(folder)])]
    assert copies == ["a.PNG", "b.png", "bad.jpg", "below/deeper/c.jpg"]


# What is written


RESULTS = [
    ("plain.jpg", ImageResult([ClassScore(3, 0.25, "tiger shark"), ClassScore(4, 0.125, 'a "quoted", label')])),
    ("b\udcff\n.jpg", ImageResult([ClassScore(0, 1.0, "猫")])),
    ("nothing.jpg", ImageResult([])),
    ("bad.jpg", ImageResult([], ImageError("preprocess", "not_an_image", "expected one, got none"))),
    ("late.jpg", ImageResult([], DeadlineError("expected an answer within 3 s, got none"))),
    ("last.jpg", ImageResult([ClassScore(1, 0.5, "goldfish")])),
]


def shape(name: str, result: ImageResult) -> tuple[Any, ...]:
    return name, result.classes, result.error and (result.error.code, str(result.error))


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_what_is_written_can_be_read(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "results"
    with path.open("w", encoding="utf-8", errors=kind.encoding_errors, newline="") as file:
        output = kind(file)
        for row in RESULTS:
            output.add(*row)
    with path.open(encoding="utf-8", errors=kind.encoding_errors, newline="") as file:
        read = [shape(*row) for row in kind.read(file)]
    # Of CSV the last image is left out: it may have had more lines.
    assert read == [shape(*row) for row in (RESULTS[:-1] if kind is Csv else RESULTS)]


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_whatever_is_missing_at_the_end_only_whole_images_are_read(kind: Any) -> None:
    """Cut the text at every character: what is read is always a beginning of what was written."""
    text = io.StringIO()
    output = kind(text)
    for row in RESULTS:
        output.add(*row)
    written = [shape(*row) for row in RESULTS]
    for end in range(len(text.getvalue())):
        read = [shape(*row) for row in kind.read(io.StringIO(text.getvalue()[:end]))]
        assert read == written[: len(read)], end


def test_json_lines_of_a_folder_in_order(server: TritonServer, folder: Path) -> None:
    outcome = classify(folder, "--url", grpc_url(server), "--format", "jsonl", "--top-k", "2")
    assert outcome.returncode == 1  # one is no image
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [row["image"] for row in rows] == names(folder)
    assert [row["classes"][0]["label"] if row["classes"] else row["error"]["code"] for row in rows] == [
        "tiger cat",
        "espresso",
        "not_an_image",
        "missile",
    ]
    assert "left out, not named as image files are, or links to folders, pipes, devices: 1" in outcome.stderr
    assert re.search(r"^4 of 4 images, 1 failed, [\d.]+ s, [\d.]+ images/s$", outcome.stderr, re.MULTILINE)


def test_csv_has_a_line_a_class(server: TritonServer, folder: Path) -> None:
    outcome = classify(folder, "--url", http_url(server), "--format", "csv", "--top-k", "2")
    lines = list(csv.DictReader(io.StringIO(outcome.stdout)))
    assert [(Path(line["image"]).name, line["rank"], line["error_code"]) for line in lines] == [
        ("a.PNG", "1", ""),
        ("a.PNG", "2", ""),
        ("b.png", "1", ""),
        ("b.png", "2", ""),
        ("bad.jpg", "", "not_an_image"),
        ("c.jpg", "1", ""),
        ("c.jpg", "2", ""),
    ]
    assert float(lines[2]["score"]) == pytest.approx(0.9567, abs=1e-3)  # as the README shows it


def test_standard_input(server: TritonServer, photos: Path) -> None:
    with (photos / "coffee.png").open("rb") as file:
        outcome = classify("-", "--url", grpc_url(server), "--format", "jsonl", stdin=file)
    assert json.loads(outcome.stdout)["classes"][0]["label"] == "espresso"


def test_copies_and_a_page(server: TritonServer, folder: Path, tmp_path: Path) -> None:
    copies, page = tmp_path / "copies", tmp_path / "page.html"
    outcome = classify(folder, "--url", grpc_url(server), "--annotate", copies, "--report", page)
    assert outcome.returncode == 1
    found = sorted(str(path.relative_to(copies)) for path in copies.rglob("*") if path.is_file())
    assert found == ["a.PNG", "b.png", "below/deeper/c.jpg"]
    assert page.read_text().count('<script type="application/json">') == 4
    again = classify(folder / "b.png", folder / "a.PNG", "--url", grpc_url(server), "--annotate", copies)
    assert again.returncode == 0  # their place is another: their paths as they were named
    again = classify(folder, "--url", grpc_url(server), "--annotate", copies)
    assert again.returncode == 1
    assert "no annotated copy: " in again.stderr
    assert "expected no file of that name, got one; it is left as it is" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "--resume: expected an --output FILE with --format jsonl or csv"),
        (["--resume", "--output", "{}/new"], "--resume: expected an --output FILE with --format jsonl or csv"),
        (["--output", "{}/old"], "--output: expected no file there, got"),
        (["--output", "{}/absent/new"], "--output: expected a file that can be written, got"),
        (["--report", "{}/absent/page.html"], "--report: expected a file in a folder that exists, got"),
        (
            ["--resume", "--output", "{}/old", "--format", "jsonl"],
            "expected lines that --format jsonl wrote",
        ),
        (["--header", "novalue"], "--header: expected NAME=VALUE, got novalue"),
        (["--tls-authority", "absent.pem"], "tls: expected a PEM file, got absent.pem"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(arguments: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("something else\n")
    outcome = classify(folder, "--url", "grpc://127.0.0.1:1", *(one.format(tmp_path) for one in arguments))
    assert outcome.returncode == 2
    assert message in outcome.stderr
    assert (tmp_path / "old").read_text() == "something else\n"
    assert {path.name for path in tmp_path.iterdir()} <= {"photos", "old"}


def test_going_on_writes_where_a_link_leads_and_to_files_only(
    server: TritonServer, folder: Path, tmp_path: Path
) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    target.touch()
    options = ("--url", grpc_url(server), "--format", "jsonl", "--resume", "--output")
    refused = classify(folder, *options, pipe)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"python -m client classify: --resume: expected a file as --output, got {pipe}\n",
    )
    assert pipe.is_fifo()
    assert classify(folder, *options, link).returncode == 1  # bad.jpg
    assert link.is_symlink()
    assert len(rows_of(target)) == 4


def test_copies_never_take_the_place_of_their_originals(server: TritonServer, folder: Path, tmp_path: Path) -> None:
    photo = tmp_path / "only" / "c.jpg"
    photo.parent.mkdir()
    shutil.copy(folder / "below" / "deeper" / "c.jpg", photo)
    before = photo.read_bytes()
    options = ("--url", grpc_url(server), "--format", "jsonl", "--output", tmp_path / "rows", "--resume")
    outcome = classify(photo.parent, *options, "--annotate", photo.parent)
    assert outcome.returncode == 1
    assert "no annotated copy: " in outcome.stderr
    assert photo.read_bytes() == before


def test_a_full_disk_is_told_of(server: TritonServer, folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            [*COMMAND, folder, "--url", grpc_url(server)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert outcome.returncode == 1
    assert "python -m client classify: [Errno 28] No space left on device\n" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_reader_that_has_heard_enough(server: TritonServer, photos: Path, tmp_path: Path) -> None:
    many = linked(photos, tmp_path / "many", 200)
    command = [*COMMAND, str(many), "--url", grpc_url(server)]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert "Traceback" not in process.stderr.read()


# A terminal


def test_a_bar_shows_how_far_it_is(server: TritonServer, photos: Path, tmp_path: Path) -> None:
    many = linked(photos, tmp_path / "many", 100)
    terminal, stderr = pty.openpty()
    command = [*COMMAND, str(many), "--url", grpc_url(server), "--format", "jsonl"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with child(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment) as process:
        os.close(stderr)
        shown = b"".join(until_end(terminal)).decode()
        assert process.wait(10) == 0
    os.close(terminal)
    assert "100/100" in shown
    assert "100 of 100 images, 0 failed" in shown


def until_end(terminal: int) -> Iterator[bytes]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                yield os.read(terminal, 4096)
            except OSError:  # the other side has closed
                return


# Runs that are broken off


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_resume_loses_and_repeats_nothing(
    server: TritonServer, photos: Path, tmp_path: Path, number: signal.Signals, kind: str
) -> None:
    many = linked(photos, tmp_path / "many", 300)
    output, page = tmp_path / "results", tmp_path / "page.html"
    options = [str(many), "--url", grpc_url(server), "--format", kind, "--output", str(output), "--report", str(page)]
    with child([*COMMAND, *options], stderr=subprocess.DEVNULL) as process:
        wait_for_lines(output, 40)
        process.send_signal(number)
        assert process.wait(20) == (130 if number == signal.SIGINT else -number)
    assert number_of_images(output, kind) < 300
    with output.open("a") as file:
        file.write('{"image": "half a li' if kind == "jsonl" else "half,a,li")
    outcome = classify(*options, "--resume")
    assert outcome.returncode == 0, outcome.stderr
    assert number_of_images(output, kind) == 300
    if kind == "jsonl":
        assert_complete(rows_of(output), many, expected_class_ids(server, many))
    assert page.read_text().count('<script type="application/json">') == 300
    before = output.read_text()
    assert classify(*options, "--resume").returncode == 0
    assert sorted(output.read_text().splitlines()) == sorted(before.splitlines())


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def number_of_images(path: Path, kind: str) -> int:
    """The number of images with results; fails where one stands in two places."""
    if kind == "jsonl":
        found = [json.loads(line)["image"] for line in path.read_text().splitlines() if line.endswith("}")]
    else:
        lines = list(csv.DictReader(path.open(newline="")))
        found = [name for name, _ in itertools.groupby(lines, key=lambda line: line["image"])]
    assert len(found) == len(set(found))
    return len(found)


def test_images_that_failed_for_the_servers_sake_are_done_again(
    server: TritonServer, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "results.jsonl"
    paths = names(folder)
    earlier = [
        (paths[0], ImageResult([], DeadlineError("expected an answer within 30 s, got none"))),
        (paths[2], ImageResult([], ImageError("preprocess", "not_an_image", "as it was found earlier"))),
    ]
    with output.open("w") as file:
        for row in earlier:
            JsonLines(file).add(*row)
    outcome = classify(folder, "--url", grpc_url(server), "--format", "jsonl", "--output", output, "--resume")
    assert outcome.returncode == 0
    rows = {row["image"]: row for row in rows_of(output)}
    assert list(rows) == [paths[2], paths[0], paths[1], paths[3]]
    assert rows[paths[0]]["classes"][0]["label"] == "tiger cat"
    assert rows[paths[2]]["error"]["text"] == "not_an_image: as it was found earlier"


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_is_killed_and_started_again(lite0: Path, photos: Path, tmp_path: Path, scheme: str) -> None:
    """800 images; the server is killed twice on the way. Each has exactly one result, the right one."""
    many = linked(photos, tmp_path / "many", 800)
    output, repository = tmp_path / "results.jsonl", tmp_path / "repository"
    shutil.copytree(lite0, repository)
    options = server_options(repository)
    url = f"{scheme}://127.0.0.1:{options.grpc_port if scheme == 'grpc' else options.http_port}"
    command = [*COMMAND, str(many), "--url", url, "--format", "jsonl", "--output", str(output), "--timeout-s", "60"]
    with child(command, stderr=subprocess.PIPE) as process:
        for lines in (200, 400):
            serve_until(options, output, lines)
        with TritonServer(options) as server:
            server.wait_until_ready()
            errors = process.communicate(timeout=120)[1]
            assert process.returncode == 0, errors
            assert_complete(rows_of(output), many, expected_class_ids(server, many))
    assert "800 of 800 images, 0 failed" in errors
    assert "requests sent again" in errors
    assert processes_of(repository) == []


def serve_until(options: ServerOptions, output: Path, lines: int) -> None:
    """Serve until that many results are there, then end as by `kill -9`."""
    with TritonServer(options) as server:
        server.wait_until_ready()
        wait_for_lines(output, lines)
        server.process.kill()
        server.process.wait()


def test_a_server_that_stays_away_ends_the_run_and_says_how_to_go_on(photos: Path, tmp_path: Path) -> None:
    many = linked(photos, tmp_path / "many", 20)
    output = tmp_path / "results.jsonl"
    options = ["--url", "grpc://127.0.0.1:1", "--format", "jsonl", "--output", str(output), "--timeout-s", "2"]
    outcome = classify(many, *options)
    assert outcome.returncode == 1
    assert "Connection refused" in outcome.stderr
    assert f"what is done stands in {output}; --resume goes on from there" in outcome.stderr
    assert rows_of(output) == []


def test_a_disk_that_is_full(server: TritonServer, folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, str(folder), "--url", grpc_url(server), "--format", "jsonl"]
        outcome = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert outcome.returncode == 1
    assert "python -m client classify: [Errno 28] No space left on device" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_folder_without_images(tmp_path: Path) -> None:
    outcome = classify(tmp_path, "--url", "grpc://127.0.0.1:1")
    assert outcome.returncode == 2
    assert f"expected images, found none in {tmp_path}" in outcome.stderr


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_run_without_time_to_begin(server: TritonServer, folder: Path, scheme: str) -> None:
    url = grpc_url(server) if scheme == "grpc" else http_url(server)
    outcome = classify(folder, "--url", url, "--timeout-s", "0.0001")
    assert outcome.returncode == 1
    assert f"{url}: expected an answer within 0.0001 s, got none" in outcome.stdout + outcome.stderr  # whichever call
    assert "Traceback" not in outcome.stderr
