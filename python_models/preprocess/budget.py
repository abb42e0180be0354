"""How much is decoded at the same time."""

import contextlib
import threading
from collections.abc import Iterator


class PixelBudget:
    """What the threads of one process work on has at most `pixels` together: memory is bounded as if there were one.

    An image costs at most `pixels` itself, which decode.check_cost sees to, so each gets its turn. Whole numbers: with
    fractions, what is given back need not add up to all again, and the largest image would wait for ever.
    """

    def __init__(self, pixels: int) -> None:
        self._left = pixels
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def spent(self, pixels: int) -> Iterator[None]:
        """Wait until so many are left, and take them for the time of the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= pixels)
            self._left -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._left += pixels
                self._changed.notify_all()
