"""`python -m convx info`, `demo`, `bench`, `tune`, `records` and `filter`."""

from __future__ import annotations

import sys

_USAGE = """usage: python -m convx <command>

  info    versions, build, libraries, devices, and what each method can run
  demo    MobileNetV2 and ResNet-18 on a photograph, with torch's and with convx's layers (demo --help)
  bench   times a network of yours: torch's, converted, optimized; and its layers (bench --help)
  tune    measures every way to run a model's convolutions here, and records the fastest (tune --help)
  records writes what was measured here to a file, or takes over another machine's (records --help)
  filter  filters a photo: edges, blur or a filter of yours (filter --help)"""


def main(arguments: list[str] | None = None) -> int:
    """Runs a command (sys.argv's by default) and returns the exit status."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if command == "info" and not rest:
        from convx.info import report

        print(report())
        return 0
    if command == "demo":
        from convx.demo import main as demo

        return demo(rest)
    if command == "bench":
        from convx.bench import main as bench

        return bench(rest)
    if command == "tune":
        from convx.tune.cli import main as tune

        return tune(rest)
    if command == "records":
        from convx.tune.cli import records_main

        return records_main(rest)
    if command == "filter":
        from convx.images.cli import main as filter_photo

        return filter_photo(rest)
    asks_for_help = command in ("-h", "--help", "help")
    print(_USAGE, file=sys.stdout if asks_for_help else sys.stderr)
    return 0 if asks_for_help else 2


if __name__ == "__main__":
    sys.exit(main())
