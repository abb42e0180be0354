"""Odd, damaged and hostile image files in between the good ones."""

import itertools
from collections.abc import Iterator

from server.installation import ROOT

from .fault import Fault
from .load import Answer, GrpcCaller, HttpCaller, Outcome, Photo, Tally
from .photos import coffee
from .sending import send_each
from .service import Service

FOLDER = ROOT.parent / "shared" / "images" / "odd"
BOMB = bytes.fromhex("89504e470d0a1a0a0000000d49484452fffffff0fffffff0080200000000000000")  # a PNG of 2e9 x 2e9

Kind = type[GrpcCaller] | type[HttpCaller]


def hostile_images(service: Service, quick: bool) -> Iterator[Fault]:
    files = hostile_files()
    yield Fault(name=f"{len(files)} hostile images, over both protocols", inject=lambda service: send(service, files))


def hostile_files() -> list[bytes]:
    """Those of the folder beside the project, where there is one, and a few that need none."""
    whole = coffee().read_bytes()
    made = [b"", b"no image", bytes(10_000), whole[: len(whole) // 2], whole[8:], whole[::-1], BOMB]
    return made + [path.read_bytes() for path in sorted(FOLDER.glob("*"))]


def send(service: Service, files: list[bytes]) -> Tally:
    kinds: list[Kind] = [GrpcCaller, HttpCaller]
    return send_each(itertools.product(files, kinds), lambda each: ask(*each, service))


def ask(file: bytes, kind: Kind, service: Service) -> Answer:
    """Whichever class it gets is right; whether it may have one, tests/test_corpus.py and others say."""
    caller = kind(service.options)
    outcome, text = caller.ask(Photo(file, -1))
    caller.close()
    return (Outcome.ANSWERED, "") if outcome == Outcome.WRONG else (outcome, text)
