"""Results as text: a table for people, JSON lines or CSV for programs; each is written as it comes, and can be read."""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby, pairwise
from typing import IO

from ..errors import ClassificationError
from ..results import ClassScore, ImageResult

CSV_FIELDS = ("image", "rank", "class_id", "score", "label", "error_code", "error")


class Table:
    """For people: the classes of each image under its name."""

    name, encoding_errors = "table", "backslashreplace"

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def add(self, name: str, result: ImageResult) -> None:
        lines = [f"  {one.score:8.2%}  {one.class_id:4}  {one.label}" for one in result.classes]
        if result.error:
            lines = [f"  {result.error}"]
        self._file.write("\n".join([name, *(lines or ["  no class reaches the threshold"])]) + "\n")
        self._file.flush()


class Timeline(Table):
    """For people who look at a video: one line a frame."""

    def add(self, name: str, result: ImageResult) -> None:
        classes = "".join(f"  {one.score:5.1%} {one.label}" for one in result.classes)
        text = f"  {result.error}" if result.error else classes or "  no class reaches the threshold"
        self._file.write(f"{name}{text}\n")
        self._file.flush()


class JsonLines:
    """One object a line: image, classes, error; `error` is null or has a code and a text."""

    name, encoding_errors = "jsonl", "backslashreplace"  # of a name that is no UTF-8, in JSON's own notation

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def add(self, name: str, result: ImageResult) -> None:
        error = None if result.error is None else {"code": result.error.code, "text": str(result.error)}
        row = {"image": name, "classes": [asdict(one) for one in result.classes], "error": error}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    @staticmethod
    def read(file: IO[str]) -> Iterator[tuple[str, ImageResult]]:
        """The whole rows of a file that `add` wrote; a last line that was cut short is left out."""
        for line in file:
            if line.endswith("\n"):
                row = json.loads(line)
                classes = [ClassScore(**one) for one in row["classes"]]
                yield row["image"], ImageResult(classes, _read_error(**row["error"]) if row["error"] else None)


class Csv:
    """One line a class; an image without one has one line, with the error if there is one."""

    name, encoding_errors = "csv", "surrogateescape"  # a name that is no UTF-8 stays the bytes it is

    def __init__(self, file: IO[str]) -> None:
        self._file, self._writer = file, csv.writer(file, lineterminator="\n")
        if not file.seekable() or file.tell() == 0:
            self._writer.writerow(CSV_FIELDS)

    def add(self, name: str, result: ImageResult) -> None:
        error = ("", "") if result.error is None else (result.error.code, str(result.error))
        lines = [
            (name, rank, one.class_id, f"{one.score:.6g}", one.label, "", "")
            for rank, one in enumerate(result.classes, 1)
        ]
        self._writer.writerows(lines or [(name, "", "", "", "", *error)])
        self._file.flush()

    @staticmethod
    def read(file: IO[str]) -> Iterator[tuple[str, ImageResult]]:
        """The rows of a file that `add` wrote, but for the last image's: whether it is whole cannot be seen."""
        whole = (line for line in csv.DictReader(file) if None not in line.values())  # but one that was cut short
        images = ((name, list(lines)) for name, lines in groupby(whole, key=lambda line: line["image"]))
        for (name, lines), _ in pairwise(images):
            classes = [
                ClassScore(int(line["class_id"]), float(line["score"]), line["label"])
                for line in lines
                if line["class_id"]
            ]
            code, text = lines[0]["error_code"], lines[0]["error"]
            yield name, ImageResult(classes, _read_error(code, text) if code else None)


FORMATS: dict[str, type[Table] | type[JsonLines] | type[Csv]] = {kind.name: kind for kind in (Table, JsonLines, Csv)}
VIDEO_FORMATS = {**FORMATS, Timeline.name: Timeline}


def _read_error(code: str, text: str) -> ClassificationError:
    error = ClassificationError(text)
    error.code = code
    return error
