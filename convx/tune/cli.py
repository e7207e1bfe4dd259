"""`python -m convx tune MODEL` and `python -m convx records export FILE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from convx._named_models import add_arguments, models_and_images, require_positive, tf32_of
from convx.tune.sharing import export_records, merge_records
from convx.tune.tuning import tune


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convx tune",
        description="Measures every way to run a model's layers here, convolutions and filters, and records "
        "the fastest.",
    )
    add_arguments(parser)
    parser.add_argument("--batch", type=int, default=1, help="images at once (default: 1)")
    parser.add_argument("--training", action="store_true", help="both gradients too")
    parser.add_argument("--force", action="store_true", help="measure again what has a record")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each contender (default: 7)")
    parser.add_argument("--no-generated", action="store_true", help="without generated kernels")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Tunes, prints the report, and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    require_positive(parser, options, "batch", "size", "channels", "rounds")
    operations = ("forward", "input_grad", "weight_grad") if options.training else ("forward",)
    try:
        ((_, model, image),) = models_and_images(options, [options.layout], [options.batch])
        with tf32_of(options.dtype):
            report = tune(
                model,
                image,
                operations=operations,
                force=options.force,
                rounds=options.rounds,
                generate=not options.no_generated,
                progress=not options.quiet,
            )
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    print(report)
    return 0


def records_main(arguments: Sequence[str] | None = None) -> int:
    """Exports or merges tuning records, says how many, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m convx records",
        description="What convx.tune and first calls with torch.backends.cudnn.benchmark have found, as one "
        "file for machines of the same kind: the same GPU, or the same processor, and the same versions.",
    )
    parser.add_argument(
        "action", choices=("export", "merge"), help="write this machine's records, or take over a file's"
    )
    parser.add_argument("file", help="the file of records")
    options = parser.parse_args(arguments)
    try:
        if options.action == "export":
            print(f"{export_records(options.file)} records in {options.file}")
        else:
            print(merge_records(options.file))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0
