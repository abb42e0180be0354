"""`python -m server deploy`, `rollback` and `status`, on the real server while it answers."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.__main__ import main as export
from export.check.linter import find
from server.deploy.folders import install
from server.deploy.golden import GoldenImage, check_agreement, read_golden
from server.deploy.layout import Layout
from server.deploy.locking import locked
from server.deploy.triton import Answer
from server.errors import ServerError
from server.installation import ROOT
from server.process import TritonServer
from server.running import FILE, find_server, running_servers
from tests.asking import ask_model, padded
from tests.deploys import always, changed_export, golden_folder, run_deploys, server_command
from tests.running import processes_of, started

NAME = "efficientnet_lite0"
ESPRESSO = 967


@pytest.fixture(scope="module")
def repository(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(lite0, tmp_path_factory.mktemp("deployed") / "repository"))


@pytest.fixture(scope="module")
def own_server(repository: Path) -> Iterator[TritonServer]:
    """A server whose versions change, from test to test."""
    with started(repository) as server:
        yield server


@pytest.fixture
def photo(photos: Path) -> Path:
    return photos / "coffee.png"


@pytest.fixture
def layout(repository: Path) -> Layout:
    return Layout(repository, NAME)


def class_of(server: TritonServer, photo: Path, model: str = "pipeline") -> int:
    answer = ask_model(server, "http", model, "raw_image", padded([photo.read_bytes()]))
    return int(answer["class_id"][0, 0])


def test_under_load_no_request_is_lost_and_none_is_answered_wrongly(
    own_server: TritonServer, lite0: Path, tmp_path: Path, photo: Path, layout: Layout, repository: Path
) -> None:
    run = run_deploys(own_server.options, lite0.parent, tmp_path, photo, deploys=3, failures=2, clients_each=2)
    assert (run.traffic.lost, run.traffic.wrong(run.served)) == ([], [])
    assert run.traffic.wrong(run.served[1:]), "the check of wrong answers sees none"  # the first version's are there
    assert {one.class_id for one in run.traffic.asked} == {ESPRESSO, 10, 11, 12}
    assert "expected Triton to load it" in run.refusals[0]
    assert "not_finite" in run.refusals[1]
    assert layout.versions == [1, 2, 3, 4]
    assert (layout.retired, layout.canary_folder.exists(), layout.canary_service_folder.exists()) == ([], False, False)
    assert find_server(repository).client.ask("GET", "/v2/health/ready") == (
        200,
        None,
    )  # also after a network that could not be loaded
    assert running_stubs(own_server, NAME) == 1


def running_stubs(server: TritonServer, model: str) -> int:
    """Stubs of any version: those of versions that are unloaded have ended."""
    return sum("stub" in line for line in processes_of(server.options.repository / model))


def test_canary_promotion_and_rollback(
    own_server: TritonServer, lite0: Path, tmp_path: Path, photo: Path, layout: Layout, repository: Path
) -> None:
    before, number = layout.served, layout.next_number
    new = changed_export(lite0.parent, tmp_path / "new", always(77))
    answered = class_of(own_server, photo)
    golden = golden_folder(tmp_path / "golden", photo, "77")

    outcome = server_command("deploy", repository, new, "--canary", "--golden", golden)
    assert outcome.returncode == 0, outcome.stderr
    assert (class_of(own_server, photo), class_of(own_server, photo, "pipeline_canary")) == (answered, 77)
    check_the_clients_report(own_server, photo.parent, tmp_path / "canary.json")
    assert find(repository, "24.10") == []  # so `make serve` starts with it too
    assert [line.split()[:3] for line in status_lines(repository)[2:4]] == [
        [str(number), "canary,", "in"],
        [str(before), "serves,", "in"],
    ]

    second = server_command("deploy", repository, new)
    assert second.returncode == 1
    assert f"canary: expected none, got version {number}" in second.stderr

    assert server_command("deploy", repository, str(number), "--golden", golden).returncode == 0
    assert (class_of(own_server, photo), layout.canary_folder.exists()) == (77, False)

    back = server_command("rollback", repository)
    assert back.returncode == 0, back.stderr
    assert f"version {before} serves; kept in {layout.folder}" in back.stdout
    assert (class_of(own_server, photo), layout.served, layout.retired) == (answered, before, [number])

    state, since = {}, {}
    for line in status_lines(repository)[2:]:
        version, state_word, *_ = line.split()
        state[version], since[version] = state_word, re.findall(r"\d+-\d+-\d+ \d+:\d+:\d+", line)
    assert (state[str(number)], state[str(before)]) == ("retired", "serves,")
    assert since[str(number)] == since[str(before)]  # the one went when the other came back

    again = server_command("deploy", repository, str(number))
    assert again.returncode == 0, again.stderr
    assert "nothing else was compared" in again.stdout
    assert (class_of(own_server, photo), layout.served, layout.retired) == (77, number, [])

    assert server_command("rollback", repository).returncode == 0


def check_the_clients_report(server: TritonServer, photos: Path, report: Path) -> None:
    """`classify --canary 0.5` of four photographs, with a canary that is sure of another class than all of them."""
    names = ("coffee.png", "chelsea.png", "rocket.jpg", "camera.png")
    files = [photos / name for name in names]
    outcome = classify(server.options.grpc_url, *files, "--canary", "0.5", "--canary-report", report)
    assert outcome.returncode == 0, outcome.stderr
    top_1 = [json.loads(line)["classes"][0]["class_id"] for line in outcome.stdout.splitlines()]
    assert (len(top_1), 77 in top_1) == (4, False)  # the results are those of `pipeline`
    assert "pipeline_canary: 2 images compared, the same top-1 on 0 (0.0%)" in outcome.stderr
    found = json.loads(report.read_text("utf-8"))
    assert (found["compared"], found["same_top_1"], found["canary"]["errors"]) == (2, 0, 0)
    assert 0 < found["pipeline"]["p50_ms"] <= found["pipeline"]["p99_ms"]


def classify(url: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command: list[str | Path] = [sys.executable, "-m", "client", "classify", "--url", url, "--format", "jsonl"]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def status_lines(repository: Path) -> list[str]:
    outcome = server_command("status", repository)
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert lines[0].startswith(f"{NAME} in {repository}: ready at http://127.0.0.1:")
    return lines


def test_a_canary_can_be_dropped(
    own_server: TritonServer, lite0: Path, photo: Path, layout: Layout, repository: Path
) -> None:
    answered = class_of(own_server, photo)
    assert server_command("deploy", repository, lite0.parent, "--canary").returncode == 0
    dropped = server_command("rollback", repository, "--canary")
    assert dropped.returncode == 0, dropped.stderr
    assert (class_of(own_server, photo), layout.canary_version) == (answered, None)
    assert "expected a canary, got none" in server_command("rollback", repository, "--canary").stderr
    outcome = classify(own_server.options.http_url, photo, "--canary", "1")
    assert (outcome.returncode, "expected a server with `pipeline_canary`, got none" in outcome.stderr) == (2, True)


def test_images_without_labels_must_keep_the_top_1(
    own_server: TritonServer, lite0: Path, tmp_path: Path, photo: Path, layout: Layout, repository: Path
) -> None:
    (tmp_path / "golden").mkdir()
    shutil.copy(photo, tmp_path / "golden")
    served = class_of(own_server, photo)
    new = changed_export(lite0.parent, tmp_path / "new", always(served + 1))
    outcome = server_command("deploy", repository, new, "--golden", tmp_path / "golden")
    assert outcome.returncode == 1
    assert f"expected version {layout.served}'s top-1 on 95.0% at least, got the same top-1" in outcome.stderr
    assert (class_of(own_server, photo), layout.canary_version) == (served, None)


def test_what_fails_after_the_switch_is_taken_back(
    own_server: TritonServer, lite0: Path, tmp_path: Path, photo: Path, layout: Layout, repository: Path
) -> None:
    """A version that was checked, and whose file was damaged since then: Triton refuses it, and the old one serves."""
    served, number = class_of(own_server, photo), layout.next_number
    assert server_command("deploy", repository, lite0.parent, "--canary").returncode == 0
    (layout.canary_folder / str(number) / "model.onnx").write_bytes(b"damaged")  # Triton has the network in memory
    outcome = server_command("deploy", repository, str(number))
    assert outcome.returncode == 1
    assert "expected Triton to load it" in outcome.stderr
    assert f"version {number}: taken back" in outcome.stdout
    assert class_of(own_server, photo) == served
    assert (layout.retired_folder(number) / "model.onnx").read_bytes() == b"damaged"
    assert find_server(repository).client.ask("GET", "/v2/health/ready") == (200, None)
    assert (number in layout.retired, layout.canary_version, layout.served < number) == (True, None, True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b"cut"), "model.onnx: expected sha256"),
        (lambda folder: (folder / "labels.txt").unlink(), "expected an export, got a folder without labels.txt"),
        (lambda folder: (folder / "labels.txt").write_text("cat\ndog\n"), "expected the labels that `postprocess`"),
        (lambda folder: set_in_manifest(folder, "activation", "sigmoid"), "activation: expected softmax"),
        (lambda folder: set_in_manifest(folder, "classes", 10), "classes: expected 1000"),
        (lambda folder: set_in_manifest(folder, "takes_pixels", True), "takes_pixels: expected False"),
        (lambda folder: resize_in_manifest(folder), "transform: expected {'resize_size': 256"),
    ],
    ids=["network", "no labels", "labels", "activation", "classes", "pixels", "transform"],
)
def test_what_does_not_fit_is_refused(
    spoil: "object", message: str, own_server: TritonServer, lite0: Path, tmp_path: Path, layout: Layout
) -> None:
    bad = changed_export(lite0.parent, tmp_path / "bad", lambda model: None)
    spoil(bad)  # type: ignore[operator]
    outcome = server_command("deploy", layout.repository, bad)
    assert outcome.returncode == 1
    assert message in outcome.stderr
    assert not layout.canary_folder.exists()


def set_in_manifest(folder: Path, key: str, value: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), key: value}), "utf-8")


def resize_in_manifest(folder: Path) -> None:
    transform = json.loads((folder / "manifest.json").read_text("utf-8"))["transform"]
    set_in_manifest(folder, "transform", {**transform, "resize_size": 232})


def test_two_at_the_same_time_are_refused(own_server: TritonServer, lite0: Path, repository: Path) -> None:
    with locked(repository):
        outcome = server_command("deploy", repository, lite0.parent)
    assert outcome.returncode == 1
    assert "expected nobody else who changes its versions" in outcome.stderr


def test_errors_say_what_to_do(own_server: TritonServer, lite0: Path, repository: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(lite0, tmp_path / "repository"))
    for arguments in (["status", elsewhere], ["deploy", elsewhere, lite0.parent], ["rollback", elsewhere]):
        outcome = server_command(str(arguments[0]), *arguments[1:])  # type: ignore[arg-type]
        assert outcome.returncode == 1
        assert "server: expected one of `python -m server` that serves" in outcome.stderr
    assert "expected an ensemble `pipeline`" in server_command("status", tmp_path).stderr
    unknown = server_command("deploy", repository, "99")
    assert "version: expected one of [" in unknown.stderr
    empty = server_command("deploy", repository, lite0.parent, "--golden", tmp_path)
    assert "--golden: expected images in" in empty.stderr


def note_of(repository: Path) -> Path:
    """The server.json of this process' server of `repository`; others of the whole run may have theirs."""
    notes = Path(tempfile.gettempdir()).glob(f"triton-of-{os.getpid()}-*/{FILE}")
    (found,) = (note for note in notes if json.loads(note.read_text("utf-8"))["repository"] == str(repository))
    return found


def test_a_running_server_is_found_by_its_repository(own_server: TritonServer, repository: Path) -> None:
    link = repository.parent / "link"
    link.symlink_to(repository)
    server = find_server(link)
    assert (server.pid, server.http_url) == (os.getpid(), own_server.options.http_url)
    note = note_of(repository)
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    link.unlink()


def test_what_a_killed_launcher_left_behind_is_passed_over(repository: Path, own_server: TritonServer) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(10)
    note = note_of(repository)
    with tempfile.TemporaryDirectory(prefix=f"triton-of-{gone.pid}-") as folder:
        described = json.loads(note.read_text("utf-8"))
        Path(folder, FILE).write_text(json.dumps({**described, "pid": gone.pid}), "utf-8")
        assert [server.pid for server in running_servers() if server.repository == described["repository"]] == [
            os.getpid()
        ]


def test_writing_the_repository_again_leaves_deployed_versions(
    lite0: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make serve` does at each start."""
    new = changed_export(lite0.parent, tmp_path / "new", always(77))
    repository = Path(shutil.copytree(lite0, tmp_path / "repository"))
    shutil.copytree(repository / NAME / "1", repository / NAME / "2")
    before = (repository / NAME / "1" / "model.onnx").read_bytes()
    write = ["repository", "--output", str(new), "--repository", str(repository)]
    assert export(write) == 0
    assert "to add this one: make deploy DIR=" in capsys.readouterr().out
    assert [(repository / NAME / number / "model.onnx").read_bytes() == before for number in "12"] == [True, True]
    (new / "labels.txt").write_text("other\n" * 1000)
    assert export(write) == 1
    assert "expected an export with the transform, classes and labels of the deployed" in capsys.readouterr().err


def test_a_folder_is_installed_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        install(tmp_path / "2", tmp_path, {"manifest.json": b"{}", "model.onnx": tmp_path / "absent"})
    assert list(tmp_path.iterdir()) == []
    install(tmp_path / "2", tmp_path, {"configs/a.pbtxt": b"a"}, empty_folders=["1"])
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "2",
        "2/1",
        "2/configs",
        "2/configs/a.pbtxt",
    ]


def test_versions_are_read_from_the_folders(tmp_path: Path) -> None:
    for name in ("1", "9", "10", "retired-12", "retired-x", "011", "configs", "-3", ".new-4"):
        (tmp_path / NAME / name).mkdir(parents=True)
    (tmp_path / f"{NAME}_canary" / "13").mkdir(parents=True)
    layout = Layout(tmp_path, NAME)
    assert (layout.versions, layout.retired, layout.served) == ([1, 9, 10], [12], 10)
    assert (layout.canary_version, layout.next_number) == (13, 14)


def test_golden_images_bear_their_folder_as_label(tmp_path: Path) -> None:
    for name in ("tabby cat/b.jpg", "tabby cat/a.jpg", "967/c.png", "967/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    images = read_golden(tmp_path)
    assert [(one.name, one.label) for one in images] == [
        ("967/c.png", "967"),
        ("tabby cat/a.jpg", "tabby cat"),
        ("tabby cat/b.jpg", "tabby cat"),
    ]
    assert GoldenImage("", tmp_path, "967").is_right(Answer(967, 1, "espresso"))
    assert GoldenImage("", tmp_path, "espresso").is_right(Answer(967, 1, "espresso"))
    (tmp_path / "flat.jpg").touch()
    with pytest.raises(ServerError, match="got both"):
        read_golden(tmp_path)


def test_agreement_is_a_share() -> None:
    expected = [Answer(number, 0.5, "") for number in range(20)]
    answers = [*(Answer(number, 0.4, "") for number in range(19)), Answer(-1, 0.4, "")]
    assert check_agreement(expected, answers, 0.95, "version 1") == "the same top-1 as version 1 on 19 of 20"
    with pytest.raises(ServerError, match=r"on 96\.0% at least, got the same top-1 as version 1 on 19 of 20"):
        check_agreement(expected, answers, 0.96, "version 1")
