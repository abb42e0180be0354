"""How a generator talks with `python -m benchmarks.comparison`: a job a line in, an answer a line out, both JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

READY = {"ready": True}


def serve(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Say that this process is ready, then do jobs until the input ends. A failure is an answer: {"error": text}."""
    tell(READY)
    for line in sys.stdin:
        try:
            answer = run(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        tell(answer)


def tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
