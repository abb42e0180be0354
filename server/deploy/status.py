"""`status`: the versions of the network in a repository, and what the running Triton says of them."""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from export.pretrained import sha256

from .layout import CANARY_SERVICE, SERVICE, Layout

HEAD = ("version", "state", "in Triton", "since", "precision", "manifest's sha256")
SHA256_DIGITS = 16


def as_table(layout: Layout, states: Mapping[str, Mapping[int, str]]) -> str:
    """A line a version, the highest first; `states` are those of the classifier and of the canary, by number."""
    rows: list[tuple[str, ...]] = [HEAD]
    if (canary := layout.canary_version) is not None:
        folder = layout.canary_folder / str(canary)
        rows.append(_row(canary, f"canary, in {CANARY_SERVICE}", states[layout.canary].get(canary), folder, []))
    for number in sorted({*layout.versions, *layout.retired}, reverse=True):
        loaded = states[layout.classifier].get(number)
        rows.append(
            _row(number, _state(layout, number), loaded, layout.existing_folder(number), _ousters(layout, number))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def _state(layout: Layout, number: int) -> str:
    if number in layout.retired:
        return "retired"
    return f"serves, in {SERVICE}" if number == layout.served else "kept"


def _ousters(layout: Layout, number: int) -> list[Path]:
    """The folders whose coming or going last gave a version its state: of the served one those that were retired."""
    if number in layout.retired:
        return []
    if number == layout.served:
        return [layout.retired_folder(retired) for retired in layout.retired]
    return [layout.version_folder(next(higher for higher in layout.versions if higher > number))]


def _row(number: int, state: str, loaded: str | None, folder: Path, ousters: Sequence[Path]) -> tuple[str, ...]:
    manifest = folder / "manifest.json"
    precision = json.loads(manifest.read_text("utf-8"))["conversion"]["precision"]
    # A rename changes the time of the folder's inode, and nothing else of it.
    since_s = max(path.stat().st_ctime for path in (folder, *ousters))
    since = datetime.datetime.fromtimestamp(since_s).strftime("%Y-%m-%d %H:%M:%S")
    return (str(number), state, loaded or "-", since, precision, sha256(manifest)[:SHA256_DIGITS])
