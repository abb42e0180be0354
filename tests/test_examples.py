"""The examples in other languages, run as programs against the real server; tritonclient's answer is the reference."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import onnx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tritonclient.grpc import service_pb2

from server.process import TritonServer
from tests.asking import ask
from tests.conftest import export_repository, need_program
from tests.own_networks import keras_like_graph
from tests.running import http_url, started
from tests.web import serving

EXAMPLES = Path(__file__).resolve().parent.parent / "client" / "examples"
TIMEOUT_S = 60
ODD_LABELS = ['a "quoted" name, with a comma', "back\\slash", "Bär 日本", "it's", '"],"data":["', " [7] "]
CLASS = re.compile(r" +(?P<score>[\d.]+)% +(?P<class_id>\d+)  (?P<label>.*)")

Ranking = list[tuple[int, str, float]]  # class, label, score in percent


@dataclass(frozen=True)
class Example:
    """One of the programs, and how it is told where the server is."""

    command: list[str]
    protocol: str
    url_option: str

    def address(self, host_and_port: str) -> str:
        return host_and_port if self.protocol == "grpc" else f"http://{host_and_port}"

    def run(self, host_and_port: str, *arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
        command = [*self.command, self.url_option, self.address(host_and_port), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=TIMEOUT_S, **options)

    def ask(self, server: TritonServer, *arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
        port = server.options.grpc_port if self.protocol == "grpc" else server.options.http_port
        return self.run(f"127.0.0.1:{port}", *arguments, **options)


def copy_of_javascript(folder: Path) -> Path:
    """The JavaScript examples as git has them, without what npm may have installed."""
    ignore = shutil.ignore_patterns("node_modules")
    return Path(shutil.copytree(EXAMPLES / "javascript", folder / "javascript", ignore=ignore))


@pytest.fixture(scope="session")
def without_dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JavaScript examples where no package is installed."""
    return copy_of_javascript(tmp_path_factory.mktemp("without_dependencies"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JavaScript examples with the packages that package-lock.json names."""
    npm = need_program("npm", package="npm")
    folder = copy_of_javascript(tmp_path_factory.mktemp("installed"))
    command = [npm, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert outcome.returncode == 0, outcome.stderr
    return folder


@pytest.fixture(scope="session")
def http_example(without_dependencies: Path) -> Example:
    node = need_program("node", package="nodejs")
    return Example([node, str(without_dependencies / "classify_http.mjs")], "http", "--url")


@pytest.fixture(scope="session")
def grpc_example(installed: Path) -> Example:
    node = need_program("node", package="nodejs")
    return Example([node, str(installed / "classify_grpc.mjs")], "grpc", "--url")


@pytest.fixture(scope="session")
def shell_example() -> Example:
    need_program("curl", package="curl")
    return Example(["/bin/sh", str(EXAMPLES / "shell" / "classify.sh")], "http", "-u")


@pytest.fixture(params=["http_example", "grpc_example"])
def node_example(request: pytest.FixtureRequest) -> Example:
    example: Example = request.getfixturevalue(request.param)
    return example


@pytest.fixture(params=["http_example", "grpc_example", "shell_example"])
def example(request: pytest.FixtureRequest) -> Example:
    example: Example = request.getfixturevalue(request.param)
    return example


@pytest.fixture(scope="module")
def odd_labels_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A classifier whose labels hold what JSON and a shell give a meaning to."""
    folder = tmp_path_factory.mktemp("odd_labels")
    onnx.save(keras_like_graph(size=24, classes=len(ODD_LABELS))[0], folder / "odd.onnx")
    (folder / "labels.txt").write_text("\n".join(ODD_LABELS) + "\n", "utf-8")
    source = ["--onnx", str(folder / "odd.onnx"), "--labels", str(folder / "labels.txt"), "--activation", "none"]
    with started(export_repository(folder, *source, "--resize-size", "24", "--interpolation", "bilinear")) as server:
        yield server


def rankings(printed: str) -> dict[str, Ranking]:
    """Read what the programs print: the name of a photo, then its classes, each on a line that begins with spaces."""
    found: dict[str, Ranking] = {}
    ranking: Ranking = []
    for line in printed.splitlines():
        if match := CLASS.fullmatch(line):
            ranking.append((int(match["class_id"]), match["label"], float(match["score"])))
        elif not line.startswith(" "):
            ranking = found[line] = []
    return found


def reference(server: TritonServer, photo: Path, **parameters: float) -> Ranking:
    """What tritonclient gets for one photo."""
    answer = ask(server, "http", [photo.read_bytes()], **parameters)
    rows = zip(*(answer[name][0].tolist() for name in ("class_id", "label", "score")), strict=True)
    return [(class_id, label.decode(), 100 * score) for class_id, label, score in rows if class_id != -1]


def check_rankings(printed: str, server: TritonServer, photos: list[Path], **parameters: float) -> None:
    found = rankings(printed)
    assert list(found) == [str(photo) for photo in photos]
    for photo in photos:
        expected = reference(server, photo, **parameters)
        assert [row[:2] for row in found[str(photo)]] == [row[:2] for row in expected]
        # Printed with two decimals; and in a batch of another size the network rounds otherwise, by some 1e-4 %.
        assert [row[2] for row in found[str(photo)]] == pytest.approx([row[2] for row in expected], abs=0.006)


@contextmanager
def silent_server() -> Iterator[str]:
    """Take connections and never answer; yields HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def closed_port() -> Iterator[str]:
    """A port that is ours, and at which nothing listens; yields HOST:PORT."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


# Answers


def test_coffee_is_espresso_as_the_readme_shows_it(example: Example, server: TritonServer, photos: Path) -> None:
    outcome = example.ask(server, "coffee.png", cwd=photos)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.splitlines()[:2] == ["coffee.png", "    95.67%   967  espresso"]
    assert outcome.stdout in (EXAMPLES / "README.md").read_text("utf-8")


def test_several_photos(example: Example, server: TritonServer, photos: Path) -> None:
    """Of three formats and very different lengths, which a batch pads."""
    files = [photos / name for name in ("coffee.png", "rocket.jpg", "chelsea.png", "multipage.tif", "astronaut.png")]
    outcome = example.ask(server, *files)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    check_rankings(outcome.stdout, server, files)


@pytest.mark.parametrize(
    ("top_k", "threshold"), [(3, None), (1000, None), (None, 0.01), (None, 1), (2, 0.0), (1000, 1e-3)], ids=str
)
def test_request_parameters(
    node_example: Example, server: TritonServer, photos: Path, top_k: int | None, threshold: float | None
) -> None:
    files = [photos / "coffee.png", photos / "chelsea.png"]
    given = {"top_k": top_k, "threshold": threshold}
    parameters = {name: value for name, value in given.items() if value is not None}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in parameters.items()]
    outcome = node_example.ask(server, *flags, *files)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    check_rankings(outcome.stdout, server, files, **parameters)
    assert ("no class reaches the threshold" in outcome.stdout) == (threshold == 1)


def test_odd_labels(example: Example, odd_labels_server: TritonServer, photos: Path) -> None:
    file = photos / "coffee.png"
    outcome = example.ask(odd_labels_server, file)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    check_rankings(outcome.stdout, odd_labels_server, [file])
    all_but_one = {label for _, label, _ in rankings(outcome.stdout)[str(file)]}
    assert len(all_but_one & set(ODD_LABELS)) == 5


def test_a_file_of_11_megabytes(example: Example, server: TritonServer, photos: Path, tmp_path: Path) -> None:
    """More than gRPC's own limit on a message."""
    image = cv2.imread(str(photos / "coffee.png"))
    assert image is not None
    cv2.imwrite(str(tmp_path / "large.bmp"), cv2.resize(image, (2400, 1600)))
    assert (tmp_path / "large.bmp").stat().st_size > 11e6
    outcome = example.ask(server, tmp_path / "large.bmp")
    assert outcome.returncode == 0, outcome.stderr
    check_rankings(outcome.stdout, server, [tmp_path / "large.bmp"])


NAMES = [b"two  spaces.png", b"caf\xe9.png", b"-u", b"$(id) `id` \"'\\n*.png", b"two\nlines.png", "Bär.png".encode()]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_file_name_in_the_shell(
    shell_example: Example, server: TritonServer, photos: Path, tmp_path: Path, name: bytes
) -> None:
    """The name comes back byte by byte, from a good file as from a bad one."""
    bad = b"bad " + name
    shutil.copy(photos / "coffee.png", tmp_path / os.fsdecode(name))
    (tmp_path / os.fsdecode(bad)).write_bytes(b"no image")
    command = [*shell_example.command, "-u", http_url(server), "--", os.fsdecode(name), os.fsdecode(bad)]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S)
    assert outcome.stdout.startswith(name + b"\n    95.67%   967  espresso\n")
    assert bad + b": {" in outcome.stderr
    assert outcome.returncode == 1


# Failures


def test_bad_files_among_good_ones(example: Example, server: TritonServer, photos: Path, tmp_path: Path) -> None:
    """Each bad file is named with the reason; the good ones are answered."""
    (tmp_path / "text.jpg").write_text("no image")
    good = [photos / "coffee.png", photos / "chelsea.png"]
    bad = [tmp_path / "text.jpg", tmp_path / "absent.jpg", tmp_path]
    outcome = example.ask(server, bad[0], good[0], *bad[1:], good[1])
    assert outcome.returncode == 1
    check_rankings(outcome.stdout, server, good)
    (refused,) = (line for line in outcome.stderr.splitlines() if line.startswith(f"{bad[0]}: "))
    assert "preprocess: not_an_image: image " in refused
    for path in bad[1:]:
        assert re.search(rf"^{re.escape(str(path))}: (ENOENT|EISDIR|expected a file)", outcome.stderr, re.MULTILINE)


@pytest.mark.parametrize("flags", [[], ["--top-k", "2"]], ids=["raw", "with parameters"])
@pytest.mark.parametrize(("content", "code"), [(b"", "empty"), (b"text", "not_an_image")])
def test_nothing_but_a_bad_file(
    node_example: Example, server: TritonServer, tmp_path: Path, content: bytes, code: str, flags: list[str]
) -> None:
    (tmp_path / "bad").write_bytes(content)
    outcome = node_example.ask(server, tmp_path / "bad", *flags)
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/bad: .*preprocess: {code}: image 0: .*\n", outcome.stderr)


def test_an_empty_file_in_the_shell(shell_example: Example, server: TritonServer, tmp_path: Path) -> None:
    (tmp_path / "bad").touch()
    outcome = shell_example.ask(server, tmp_path / "bad")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert "preprocess: empty: image 0: " in outcome.stderr


def test_no_file_can_be_read(example: Example, server: TritonServer, tmp_path: Path) -> None:
    outcome = example.ask(server, tmp_path / "absent.jpg")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize("flag", ["--top-k=0", "--top-k=1001", "--threshold=1.5", "--threshold=-1"])
def test_a_parameter_out_of_range(node_example: Example, server: TritonServer, photos: Path, flag: str) -> None:
    outcome = node_example.ask(server, photos / "coffee.png", flag)
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert "postprocess: invalid_parameter: " in outcome.stderr


def test_no_server(example: Example, photos: Path) -> None:
    with closed_port() as address:
        outcome = example.run(address, photos / "coffee.png")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert f"{photos / 'coffee.png'}: " in outcome.stderr
    assert "ECONNREFUSED" in outcome.stderr or "Failed to connect" in outcome.stderr
    assert address in outcome.stderr


def test_a_server_that_never_answers(node_example: Example, photos: Path) -> None:
    with silent_server() as address:
        outcome = node_example.run(address, photos / "coffee.png", "--timeout-s", "0.5")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert re.search("aborted due to timeout|DEADLINE_EXCEEDED", outcome.stderr)


@pytest.mark.parametrize("name", ["http_example", "shell_example"])
def test_a_server_that_is_no_triton(name: str, request: pytest.FixtureRequest, photos: Path) -> None:
    example: Example = request.getfixturevalue(name)
    with serving({}) as url:
        outcome = example.run(url.removeprefix("http://"), photos / "coffee.png")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert "404" in outcome.stderr


def test_no_photo(example: Example) -> None:
    outcome = example.run("127.0.0.1:1")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "usage: " in outcome.stderr


def test_an_unknown_option(example: Example) -> None:
    outcome = example.run("127.0.0.1:1", "-x", "photo.jpg")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "usage: " in outcome.stderr


@pytest.mark.parametrize(
    "flag", ["--top-k=many", "--top-k=2.5", "--top-k=", "--threshold=x", "--timeout-s=0", "--timeout-s=Infinity"]
)
def test_an_option_that_is_no_number(node_example: Example, flag: str) -> None:
    outcome = node_example.run("127.0.0.1:1", "photo.jpg", flag)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert f"{flag.split('=')[0]}: expected " in outcome.stderr


# Decoding alone


def evaluate(folder: Path, script: str) -> str:
    """Run a JavaScript module beside the examples, and return what it prints."""
    node = need_program("node", package="nodejs")
    command = [node, "--input-type=module", "--eval", script]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize(
    ("output", "hexadecimal", "printed"),
    [
        ({"datatype": "INT32", "shape": [1, 2]}, "ffffffff00000080", '{"0":-1,"1":-2147483648}'),
        ({"datatype": "FP32", "shape": [2]}, "0000c03f000000c0", '{"0":1.5,"1":-2}'),
        ({"datatype": "BYTES", "shape": [2]}, "000000000300000061c3a4", '["","aä"]'),
        ({"datatype": "BYTES", "shape": [0]}, "", "[]"),
        ({"datatype": "INT32", "shape": [3]}, "ffffffff", "out: expected 3 values of shape [3], got 1"),
        ({"datatype": "FP16", "shape": [1]}, "003c", "out: expected one of INT32,FP32,BYTES, got FP16"),
    ],
    ids=lambda value: value.get("datatype") if isinstance(value, dict) else None,
)
def test_decode_tensor(without_dependencies: Path, output: dict[str, Any], hexadecimal: str, printed: str) -> None:
    script = f"""
        import {{ decodeTensor }} from './triton_http.mjs';
        try {{
            const bytes = Buffer.from('00{hexadecimal}', 'hex').subarray(1); // where no number is aligned
            const tensor = decodeTensor({json.dumps({"name": "out", **output})}, bytes);
            console.log(JSON.stringify(tensor.data));
        }} catch (error) {{
            console.log(error.message);
        }}"""
    assert evaluate(without_dependencies, script) == f"{printed}\n"


# What the examples are made of


def field_descriptions(message: Any, path: str) -> dict[str, tuple[Any, ...]]:
    """Number, type and so on of each field of a message and of the messages inside it, by its path.

    proto-loader names types without their package, and the entries of a map without `Entry` at their end.
    """
    found = {}
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        type_name = field.type_name.rsplit(".")[-1].removesuffix("Entry")
        found[f"{path}.{field.name}"] = (field.number, field.type, field.label, type_name, oneof)
    for nested in message.nested_type:
        found |= field_descriptions(nested, f"{path}.{nested.name.removesuffix('Entry')}")
    return found


def test_the_proto_is_a_part_of_tritons(installed: Path) -> None:
    script = """
        import loader from '@grpc/proto-loader';
        const definition = loader.loadSync('triton.proto', { keepCase: true });
        const method = definition['inference.GRPCInferenceService'].ModelInfer;
        console.log(method.path);
        console.log(method.requestType.fileDescriptorProtos[0].toString('base64'));"""
    method, encoded = evaluate(installed, script).split()
    assert method == "/inference.GRPCInferenceService/ModelInfer"
    ours = FileDescriptorProto.FromString(base64.b64decode(encoded))
    tritons = FileDescriptorProto()
    service_pb2.DESCRIPTOR.CopyToProto(tritons)
    our_fields, tritons_fields = (
        {
            key: value
            for message in file.message_type
            for key, value in field_descriptions(message, message.name).items()
        }
        for file in (ours, tritons)
    )
    assert len(our_fields) == 16
    assert our_fields == {key: tritons_fields.get(key) for key in our_fields}


def test_every_package_is_pinned_and_comes_from_the_public_registry() -> None:
    folder = EXAMPLES / "javascript"
    manifest = json.loads((folder / "package.json").read_text("utf-8"))
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in manifest["dependencies"].values())
    packages = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    assert packages.pop("")["dependencies"] == manifest["dependencies"]
    for package in packages.values():
        assert package["resolved"].startswith("https://registry.npmjs.org/")
        assert package["integrity"].startswith("sha512-")


def test_shellcheck() -> None:
    shellcheck = need_program("shellcheck", package="shellcheck")
    command = [shellcheck, str(EXAMPLES / "shell" / "classify.sh")]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (outcome.returncode, outcome.stdout) == (0, "")
