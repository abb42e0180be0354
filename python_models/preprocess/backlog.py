"""Whether too many requests wait behind this step, as the launcher of the server tells by a file of one byte.

Where there is no launcher, as under a plain tritonserver, nobody tells.
"""

import mmap
import os
from pathlib import Path

VARIABLE = "TRITON_CLASSIFY_BACKLOG"  # in the environment: the file's path


class Backlog:
    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self._byte: mmap.mmap | bytes = b"\0"
        if path:
            with Path(path).open("rb") as file:
                self._byte = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)

    @property
    def is_too_long(self) -> bool:
        return self._byte[0] != 0
