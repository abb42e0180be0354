"""`status`: the versions of the network in a repository, and what the running Triton says of them."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from export.pretrained import sha256

from .layout import CANARY_SERVICE, SERVICE, Layout

HEAD = ("version", "state", "in Triton", "since", "precision", "manifest's sha256")
SHA256_DIGITS = 16


def as_table(layout: Layout, states: Mapping[str, Mapping[int, str]]) -> str:
    """A line a version, the highest first; `states` are those of the classifier and of the canary, by number."""
    loaded, canary_loaded = states.get(layout.classifier, {}), states.get(layout.canary, {})
    rows: list[tuple[str, ...]] = [HEAD]
    if (canary := layout.canary_version) is not None:
        folder = layout.canary_folder / str(canary)
        rows.append(row(canary, f"canary, in {CANARY_SERVICE}", canary_loaded.get(canary), folder))
    for number in sorted({*layout.versions, *layout.retired}, reverse=True):
        if number in layout.retired:
            rows.append(row(number, "retired", None, layout.retired_folder(number)))
        else:
            state = f"serves, in {SERVICE}" if number == layout.served else "kept"
            rows.append(row(number, state, loaded.get(number), layout.version_folder(number)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def row(number: int, state: str, loaded: str | None, folder: Path) -> tuple[str, ...]:
    manifest = folder / "manifest.json"
    precision = json.loads(manifest.read_text("utf-8"))["conversion"]["precision"]
    return (str(number), state, loaded or "-", since(folder), precision, sha256(manifest)[:SHA256_DIGITS])


def since(folder: Path) -> str:
    """When the folder was written or got its name: since then it has been in that state."""
    return datetime.datetime.fromtimestamp(folder.stat().st_ctime).strftime("%Y-%m-%d %H:%M:%S")
