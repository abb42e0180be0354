"""`triton-classify`, or here `python -m client`: classify images, watch the server, manage its models."""

import argparse
import os
import sys

from .command_line import classify, decode, models, status, video, watch
from .command_line.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, UsageError

PROGRAM = "triton-classify" if __package__ == "triton_classify" else "python -m client"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, epilog="Exit status: 0; 1 where something failed; 2 wrong usage."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (classify, video, status, watch, models, decode):
        command.add_command(commands)
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a file's name may be any bytes
    try:
        return int(options.run(options))
    except UsageError as error:
        print(f"{PROGRAM} {options.command}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:  # a disk that is full
        if not isinstance(error, BrokenPipeError):  # whoever read our output has heard enough
            print(f"{PROGRAM} {options.command}: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
