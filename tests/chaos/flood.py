"""`python -m tests.chaos.flood`: many HTTP requests from one process, by a clock or so many in flight; a JSON report.

It costs so little that the service is what is measured: the request is made before, the answer hardly read.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from .load import Outcome, judge
from .messages import class_of_reply

ANSWER_TIMEOUT_S = 60  # a full queue of a slow network takes its time
MOST_IN_FLIGHT = 5120  # of a service that refuses none; what is beyond is not sent, and lost
TICK_S = 0.01
PROBES_S, PROBE_EVERY_S = 40, 0.1  # at most, until one is answered at once
AT_ONCE_S = 1
CONTENT_LENGTH = b"content-length:"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Flood:
    """Connections are kept and used again; there are as many as requests in flight at a time."""

    def __init__(self, port: int, request: bytes, class_id: int) -> None:
        self._port, self._request, self._class_id = port, request, class_id
        self._idle: list[Connection] = []
        self.rate = 0.0  # answered a second, while there was load
        self.counts: Counter[Outcome] = Counter()
        self.seconds: dict[Outcome, list[float]] = {outcome: [] for outcome in Outcome}

    async def ask(self) -> tuple[Outcome, float]:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                outcome = await self._exchange()
        except TimeoutError:
            outcome = Outcome.LOST
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            outcome = Outcome.FAILED  # a connection that ends is no way to refuse
        seconds = time.monotonic() - began_s
        self.counts[outcome] += 1
        self.seconds[outcome].append(seconds)
        return outcome, seconds

    async def _exchange(self) -> Outcome:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(CONTENT_LENGTH))
            body = await reader.readexactly(int(length[len(CONTENT_LENGTH) :]))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        if head[9:12] != b"200":
            return judge(head[9:12].decode(), body.decode(errors="replace"))
        return Outcome.ANSWERED if class_of_reply(body) == self._class_id else Outcome.WRONG

    async def keep_in_flight(self, count: int, seconds: float) -> None:
        began_s = time.monotonic()

        async def caller() -> None:
            while time.monotonic() < began_s + seconds:
                await self.ask()

        await asyncio.gather(*(caller() for _ in range(count)))
        self.rate = self.counts[Outcome.ANSWERED] / (time.monotonic() - began_s)

    async def by_the_clock(self, rate: float, seconds: float) -> tuple[float, list[Any]]:
        """Seconds that the clock was late at most, and the probes sent after its end: seconds after it, what became of
        it, and how long it took."""
        began_s, sent, late_s, tasks = time.monotonic(), 0, 0.0, set[asyncio.Task[Any]]()

        def start(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
            task = asyncio.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        while (now_s := time.monotonic() - began_s) < seconds:
            late_s = max(late_s, now_s - sent / rate)
            while sent < now_s * rate:
                if len(tasks) < MOST_IN_FLIGHT:
                    start(self.ask())
                else:
                    self.counts[Outcome.LOST] += 1
                sent += 1
            await asyncio.sleep(TICK_S)
        self.rate = self.counts[Outcome.ANSWERED] / now_s
        probes = [(0.0, start(self.ask()))]
        while probes[-1][0] < PROBES_S and not any(is_at_once(task) for _, task in probes):
            await asyncio.sleep(PROBE_EVERY_S)
            probes.append((time.monotonic() - began_s - seconds, start(self.ask())))
        results = await asyncio.gather(*(task for _, task in probes))
        await asyncio.gather(*tasks)
        return late_s, [(sent_s, *result) for (sent_s, _), result in zip(probes, results, strict=True)]


def is_at_once(task: "asyncio.Task[tuple[Outcome, float]]") -> bool:
    return task.done() and task.result()[0] == Outcome.ANSWERED and task.result()[1] < AT_ONCE_S


async def flood(options: argparse.Namespace) -> dict[str, Any]:
    one = Flood(options.port, options.request.read_bytes(), options.class_id)
    late_s, probes = 0.0, list[Any]()
    if options.in_flight:
        await one.keep_in_flight(options.in_flight, options.seconds)
    else:
        late_s, probes = await one.by_the_clock(options.rate, options.seconds)
    return {
        "rate": one.rate,
        "counts": one.counts,
        "answered_s": one.seconds[Outcome.ANSWERED],
        "refused_s": one.seconds[Outcome.REFUSED],
        "late_s": late_s,
        "probes": probes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.flood")
    parser.add_argument("port", type=int)
    parser.add_argument("request", type=Path, help="a file with the whole request")
    parser.add_argument("class_id", type=int, help="the right answer")
    parser.add_argument("--seconds", type=float, required=True)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--in-flight", type=int)
    way.add_argument("--rate", type=float, help="requests a second")
    json.dump(asyncio.run(flood(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
