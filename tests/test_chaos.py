"""The short form of `make chaos`, and that it tells what does not hold."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from server.installation import ROOT
from tests.chaos import fault
from tests.chaos.bench import Bench
from tests.chaos.fault import Fault, Limits, Row, misses, observe
from tests.chaos.load import Load, Outcome, Tally, judge
from tests.chaos.service import Service
from tests.chaos.table import table
from tests.soak.memory import MAX_GROWTH, SAMPLE_S, Sample, growths
from tests.test_comparison import answering

DEAD = "in ensemble 'pipeline', Stub process 'preprocess_0_1' is not healthy."


def test_every_fault_of_the_short_form_holds(lite0: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--quick", "--output", str(tmp_path)]
    command += ["--model-repository", str(lite0)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    rows = (tmp_path / "chaos.md").read_text().splitlines()[2:]
    assert len(rows) >= 15
    assert {row.split("|")[-2].strip() for row in rows} == {"held"}


def test_a_service_that_nobody_heals_is_told(lite0: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launcher stands still, so that a dead stub stays dead and every second request fails."""
    monkeypatch.setattr(fault, "WHOLE_TIMEOUT_S", 4)

    def inject(service: Service) -> None:
        os.kill(service.process.pid, signal.SIGSTOP)
        os.kill(service.stub("preprocess_0_0").pid, signal.SIGKILL)

    bench = Bench(tmp_path, lite0)
    with bench.service() as service:
        with Load(service.options, bench.photos) as load:
            row = observe(Fault(name="unhealed", inject=inject), service, load, slack=1)
        os.kill(service.process.pid, signal.SIGCONT)
    assert row.whole_again_s is None
    assert row.steady.counts[Outcome.ANSWERED] > 0  # by the other instance
    assert row.misses[0].startswith(f"{row.steady.counts[Outcome.REFUSED]} refused: ")
    assert row.misses[-1] == "whole again not, expected within 3 s"


def counted(**counts: int) -> Tally:
    return Tally(Counter({Outcome(name): count for name, count in counts.items()}), longest_s=1)


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        ({}, ""),
        ({"steady": counted(answered=9, refused=1)}, "1 refused"),
        ({"steady": counted(answered=9, lost=1)}, "1 lost"),
        ({"steady": counted(answered=9, wrong=1)}, "1 wrong"),
        ({"steady": counted(answered=9, failed=1)}, "1 failed"),
        ({"steady": counted(answered=9, rejected=1)}, "1 rejected"),
        ({"steady": Tally(longest_s=2.5)}, "longest answer 2.50 s, at most 2 s expected"),
        ({"whole_again_s": 3.5}, "whole again after 3.50 s, expected within 3 s"),
        ({"client": counted(answered=9, lost=1)}, "1 images of the project's client without a right result"),
        ({"own": counted(answered=1, rejected=1)}, ""),
        ({"own": counted(lost=1)}, "its own requests: 1 lost"),
    ],
    ids=str,
)
def test_each_limit_is_judged(row: dict[str, object], missed: str) -> None:
    values: dict[str, object] = {"fault": "one", "steady": counted(answered=10), "whole_again_s": 0.0, **row}
    one = Fault(name="one", inject=lambda service: None, limits=Limits(longest_s=2))
    found = misses(Row(**values), one, slack=1)  # type: ignore[arg-type]  # as pytest's table has them
    assert len(found) == bool(missed)
    assert "".join(found).startswith(missed)


@pytest.mark.parametrize(
    ("status", "text", "outcome"),
    [
        ("500", DEAD, Outcome.REFUSED),
        ("StatusCode.INTERNAL", DEAD, Outcome.REFUSED),
        ("503", "Exceeds maximum queue size", Outcome.REFUSED),
        ("StatusCode.UNAVAILABLE", "Connection refused", Outcome.REFUSED),
        ("400", "preprocess: not_an_image: expected an image", Outcome.REJECTED),
        ("StatusCode.INVALID_ARGUMENT", "unexpected shape", Outcome.REJECTED),
        ("500", "preprocess: internal: MemoryError", Outcome.FAILED),
        ("StatusCode.DEADLINE_EXCEEDED", "", Outcome.LOST),
    ],
    ids=str,
)
def test_what_an_error_is(status: str, text: str, outcome: Outcome) -> None:
    assert judge(status, text) == outcome


def test_the_table() -> None:
    steady = Tally(Counter({Outcome.ANSWERED: 90, Outcome.REFUSED: 10}), longest_s=1.23)
    rows = [Row(fault="a", steady=steady, whole_again_s=2.5), Row(fault="b", own=counted(lost=1), misses=["1 lost"])]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(rows).splitlines()[2:]] == [
        ["a", "100", "90", "10", "0", "0", "0", "1.2", "", "", "", "2.5", "held"],
        ["b", "", "", "", "", "", "", "", "", "", "1: 1 lost", "never", "MISSED"],
    ]


@pytest.mark.parametrize("way", [["--in-flight", "8"], ["--rate", "50"]], ids=str)
def test_a_flood_counts_what_is_answered_and_refused(way: list[str], tmp_path: Path) -> None:
    request = tmp_path / "request"
    request.write_bytes(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    with answering(delay_s=0.01, statuses=[200, 503]) as server:
        command = [sys.executable, "-m", "tests.chaos.flood", str(server.port), str(request), "-1", "--seconds", "1"]
        report = json.loads(subprocess.run([*command, *way], cwd=ROOT, check=True, capture_output=True).stdout)
    counts = report["counts"]
    assert set(counts) == {"answered", "refused"}
    assert abs(counts["answered"] - counts["refused"]) <= 8  # by turns, but for those in flight at the end
    assert counts["answered"] == len(report["answered_s"]) > 10
    assert min(report["answered_s"]) >= 0.01


@pytest.mark.parametrize(("growth", "held"), [(MAX_GROWTH - 0.01, True), (MAX_GROWTH + 0.01, False)])
def test_growth_is_that_between_two_minutes(growth: float, held: bool) -> None:
    """What happens before and between them does not count, nor does a single peak in them."""
    values = dict.fromkeys(range(0, 600, SAMPLE_S), 100.0)
    values.update(dict.fromkeys((10, 150, 300, 570), 300))
    values.update({second: 100 * (1 + growth) for second in range(500, 600, SAMPLE_S) if second != 570})
    samples = [Sample(second, "preprocess_0_0", mb) for second, mb in values.items()]
    (found,) = growths([*samples, Sample(300, "gone", 1)])
    assert found.share == pytest.approx(growth)
    assert found.held == held
