"""What is decoded at the same time, counted by the threads themselves."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from python_models.preprocess.budget import PixelBudget
from python_models.preprocess.formats import Header

DEADLINE_S = 30


def test_threads_never_hold_more_than_the_budget_and_all_get_their_turn() -> None:
    budget, lock, held, most = PixelBudget(100), threading.Lock(), 0, 0

    def work(pixels: int) -> None:
        nonlocal held, most
        with budget.spent(pixels):
            with lock:
                held += pixels
                most = max(most, held)
            time.sleep(0.001)
            with lock:
                held -= pixels

    costs = random.Random(0).choices([1, 10, 40, 100], k=200)
    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(work, pixels) for pixels in costs]:
            one.result(DEADLINE_S)
    assert held == 0
    assert 40 < most <= 100  # several at a time, and never too many


def test_fractions_of_pixels_leave_room_for_the_largest_image() -> None:
    """As numbers with a fraction, what was taken and given back would not add up to the whole again."""
    one = Header(format="JPEG", width=1, height=1, cost=1.1, data=b"", decode=lambda _: np.zeros((1, 1, 3), np.uint8))
    budget = PixelBudget(1000)

    def work() -> None:
        for width in range(1, 450):
            first, second = (replace(one, width=pixels).cost_pixels for pixels in (width, width // 2))
            with budget.spent(first), budget.spent(second):
                pass
            with budget.spent(1000):
                pass

    thread = threading.Thread(target=work, daemon=True)  # a daemon, for it would wait for ever
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_what_fails_gives_its_share_back() -> None:
    budget = PixelBudget(100)
    for _ in range(3):
        try:
            with budget.spent(100):
                raise ValueError("not an image")
        except ValueError:
            pass
    with budget.spent(100):
        pass
