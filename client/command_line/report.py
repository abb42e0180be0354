"""One self-contained page of thumbnails with their classes (`--report FILE.html`). The page itself is report.html."""

import base64
import hashlib
import json
import os
from contextlib import ExitStack
from importlib import resources
from io import BytesIO
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any
from urllib.parse import quote

from PIL import Image

from ..results import ImageResult
from .annotate import UnreadableImageError, open_upright
from .files import written_beside

THUMBNAIL_PX = 160  # the longer side
THUMBNAIL_QUALITY = 70  # of JPEG
END = '<meta id="end">'  # the page says that it is incomplete where this is missing


class ReportWriter:
    """Write the page `path` image by image, in memory that does not grow with their number.

    The page grows in a file beside `path`, which takes its place at the end of the `with`. Where that ends by an
    exception, the page is kept too, and says that it is incomplete; where no image was added by then, nothing is kept.
    A process that is killed leaves `.*.partial`, which a browser shows as well. Raises OSError where it cannot write.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._count, self._lock, self._open_files = path, 0, Lock(), ExitStack()

    def __enter__(self) -> "ReportWriter":
        with ExitStack() as stack:
            self._beside = stack.enter_context(written_beside(self._path))
            self._page = stack.enter_context(self._beside.open("x", encoding="utf-8"))
            self._page.write(page_head())
            self._open_files = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open_files:  # closes the page, then gives it its name; by an exception, removes it
            if error is None:
                self._page.write(END)
            elif self._count == 0:
                raise error

    def add(self, name: str, file: bytes | Path, result: ImageResult) -> None:
        """Append one image under `name`; from several threads if need be.

        `file` is the image's bytes or its path, to which the page then links. One that Pillow cannot open has no
        thumbnail.
        """
        row = {
            "name": printable(name),
            "link": None if isinstance(file, bytes) else relative_link(file, self._path),
            "thumbnail": thumbnail(file),
            "classes": [[one.class_id, round(one.score, 6), printable(one.label)] for one in result.classes],
            "error": printable(str(result.error)) if result.error else None,
        }
        with self._lock:
            self._page.write(as_script(row))
            self._count += 1


def page_head() -> str:
    """Everything of the page but its rows. Its policy lets no script or style run but its own, and loads no network."""
    template = resources.files(__package__).joinpath("report.html").read_text("utf-8")
    script, style = (hash_of(tag, template) for tag in ("script", "style"))
    policy = f"default-src 'none'; script-src {script}; style-src {style}; img-src data: file:; base-uri 'none'"
    return template.replace("{{policy}}", policy)


def hash_of(tag: str, page: str) -> str:
    """Return what a Content-Security-Policy calls the text of a page's first <script> or <style>."""
    _, _, rest = page.partition(f"<{tag}>")
    digest = hashlib.sha256(rest.partition(f"</{tag}>")[0].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def as_script(row: dict[str, Any]) -> str:
    """Write a row as a data block that nothing within can end: ASCII, and no `<`."""
    text = json.dumps(row, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>\n'


def printable(text: str) -> str:
    r"""Write bytes that are no UTF-8, as a file's name may have, as `\udcff`: so the command line prints them too."""
    return text.encode("utf-8", "backslashreplace").decode()


def relative_link(file: Path, page: Path) -> str:
    """Link from a page to a file, as a browser resolves it; never read as another scheme (`javascript:.jpg`)."""
    relative = Path(os.path.relpath(file, page.parent)).as_posix()
    return "./" + quote(os.fsencode(relative))


def thumbnail(file: bytes | Path) -> str | None:
    """Return a JPEG of at most 160 pixels a side in base64, or None where Pillow cannot open the file."""
    try:
        image, _ = open_upright(file, about=THUMBNAIL_PX)
    except UnreadableImageError:
        return None
    image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.LANCZOS, reducing_gap=2)
    image.info.clear()  # what the file says of itself, such as a comment, would come along
    encoded = BytesIO()
    image.save(encoded, "JPEG", quality=THUMBNAIL_QUALITY, optimize=True)
    return base64.b64encode(encoded.getvalue()).decode()
