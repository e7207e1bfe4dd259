"""Command line of the benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import convolution, filter2d, host, memory, modules, networks, report, wild
from benchmarks.ablations import ablations_of, run_ablations
from benchmarks.by_case import RunCase, end_of, is_over, run_cases
from benchmarks.ceilings import ceilings
from benchmarks.environment import device_slug, environment
from benchmarks.network_kinds import DEFAULT_KINDS, KINDS
from benchmarks.options import repeating, some_of
from benchmarks.peers import CPU_PEERS, GPU_PEERS, PEERS
from benchmarks.planner import Planner
from benchmarks.results import RESULTS, Record, Results, key
from benchmarks.suites import (
    DTYPES,
    LAYOUTS,
    OPERATIONS,
    SUITES,
    Problem,
    problems,
    select_cases,
)

_FILTER_PEERS = ("opencv", "cupy", "npp")  # of the suite filter2d alone


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Times convx beside torch's own convolutions and checks both against float64.",
        epilog="Options that name several things take them separated by commas. A run of a part of a suite, "
        "or a quick one, writes a file only where --output says.",
    )
    add = parser.add_argument
    add(
        "--suite",
        choices=(*SUITES, "filter2d", "wild", "host", "memory", "modules", "networks"),
        default="depthwise",
    )
    add("--seed", type=int, help="of the suite wild: another one than any that was looked at before")
    add("--count", type=int, default=500, help="problems of the suite wild (default 500)")
    add("--case", help="names or patterns: D1,CONV*-5x5; the suite networks has more than it runs by default")
    add(
        "--operation",
        type=some_of(*OPERATIONS, *KINDS),
        help=f"{', '.join(OPERATIONS)}; of the suite networks {', '.join(KINDS)} "
        f"(default {','.join(DEFAULT_KINDS)})",
    )
    add(
        "--dtype",
        type=some_of(*DTYPES, "tf32", "uint8"),
        help="default: float32 on a CPU; float32,bfloat16 on a GPU, and tf32 if dense",
    )
    add("--layout", type=some_of(*LAYOUTS), help=", ".join(LAYOUTS))
    add("--batch", type=_integers, help="instead of the suite's batches")
    add(
        "--peers",
        type=some_of(*PEERS, *_FILTER_PEERS),
        help=f"of {','.join(PEERS)}; default {','.join(GPU_PEERS)} on a GPU, {','.join(CPU_PEERS)} on a CPU; "
        f"filter2d {','.join(filter2d.PEERS['cuda'])} on a GPU, {','.join(filter2d.PEERS['cpu'])} on a CPU",
    )
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--algorithm", default="auto", help='ask convx for a method or a kernel, as "depthwise/strip"')
    add(
        "--all-candidates",
        action="store_true",
        help="also time every kernel that could run a problem, for benchmarks.fit; into a file of their own "
        "(but for filter2d's, which are few)",
    )
    add(
        "--ablations",
        action="store_true",
        help="instead time forms of the papers' ideas on and off: row and column reuse of depthwise, dynamic "
        "tiling and, on a GPU, channel distribution of pointwise; into a file of their own",
    )
    add(
        "--in-network",
        action="store_true",
        help="on a GPU, time calls as a network has them: operands in the cache as far as they fit, another "
        "kernel between calls; into a file of their own (the suite wild always does)",
    )
    add(
        "--warm",
        action="store_true",
        help="on a GPU, keep operands in the cache (CPU runs always do); into a file of their own",
    )
    add("--rounds", type=int, help="turns per contender (default 7; quick 3)")
    add("--quick", action="store_true", help="few rounds")
    add(
        "--resume",
        action="store_true",
        help="keep the records of an existing file, measure only what it lacks and what auto takes another "
        "kernel for by now",
    )
    add("--seconds", type=float, help="stop after this time; what is measured by then is written")
    add("--output", type=Path, help=f"folder of results (default {RESULTS.name}/ of the benchmarks)")
    add("--plots", action="store_true", help="draw the results beside the file")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    filters = (options.case, options.operation, options.dtype, options.layout, options.batch, options.peers)
    is_part = options.quick or options.warm or options.algorithm != "auto" or any(filters)
    path = None
    if options.output or not is_part:
        # A file of its own: several times as large, and read by benchmarks.fit alone.
        fitted = options.all_candidates and options.suite != "filter2d"
        by_name = "_by_name" if options.algorithm != "auto" else ""
        kind = "_candidates" if fitted else "_ablations" if options.ablations else by_name
        # What was measured otherwise is not to stand beside or replace it.
        kind += "_in_network" if options.in_network else "_warm" if options.warm else ""
        file = f"{options.suite}{kind}.json"
        path = (options.output or RESULTS) / device_slug(device) / file
    failed = 0
    command = repeating("benchmarks", sys.argv[1:] if arguments is None else arguments)
    results = Results(options.suite, environment(device), command, {})
    try:
        if options.ablations and (options.all_candidates or options.suite not in ("depthwise", "pointwise")):
            raise ValueError(
                "--ablations belongs to the suites depthwise and pointwise, without --all-candidates"
            )
        if options.in_network and options.suite not in SUITES:
            raise ValueError(f"--in-network belongs to the suites {', '.join(SUITES)}")
        if path and (options.resume or (is_part and path.is_file())):
            results.keep(path)
        rounds = options.rounds or (3 if options.quick else 7)
        by_case: dict[str, tuple[Sequence[str], RunCase]] = {
            "host": (host.cases(device), partial(host.run, rounds=rounds)),
            "memory": (memory.cases(), memory.run),
        }
        if options.suite in by_case:
            run_cases(results, device, *by_case[options.suite], options, path)
        elif options.suite == "networks":
            every = networks.cases(device) if options.case else networks.default_cases(device)
            kinds = networks.kinds_of(device, options.operation)
            run_cases(results, device, every, partial(networks.run, rounds=rounds), options, path, kinds)
        elif options.suite == "modules":
            every, kinds = modules.cases(options.batch), list(modules.KINDS[device.type])
            run_cases(results, device, every, partial(modules.run, rounds=rounds), options, path, kinds)
        elif options.suite == "filter2d":
            _run_filter2d(results, device, rounds, options, path)
        else:
            failed = _run_convolutions(results, device, rounds, options, path)
    except ValueError as error:
        parser.error(str(error))
    print(report.table(results))
    if path:
        print(f"\n{path}")
        if options.plots:
            from benchmarks.plots import draw

            for picture in draw(path):
                print(picture)
    if failed:
        print(f"convx failed on {failed} problems, see above")
    return int(failed > 0)


def _run_filter2d(
    results: Results, device: torch.device, rounds: int, options: argparse.Namespace, path: Path | None
) -> None:
    results.ceilings = ceilings(device)
    peers = filter2d.available_peers(options.peers or filter2d.PEERS[device.type], tqdm.write)
    dtypes = options.dtype or tuple(filter2d.DTYPES)
    if not set(dtypes) <= set(filter2d.DTYPES):
        raise ValueError(f"--dtype: the types of this suite are {', '.join(filter2d.DTYPES)}")
    cache_bytes = _cache_bytes(device) if device.type == "cuda" and not options.warm else 0
    work = [(case, dtype) for dtype in dtypes for case in filter2d.cases(options.case)]
    with tqdm(work, unit="case", disable=None) as bar:
        for case, dtype in bar:
            rest = (peers, options.all_candidates, rounds, cache_bytes, bar.write)
            for record in filter2d.run(case, dtype, device, results.ceilings, *rest):
                results.add(record)
                bar.write(report.line(record))
    if path:
        results.write(path)


def _run_convolutions(
    results: Results, device: torch.device, rounds: int, options: argparse.Namespace, path: Path | None
) -> int:
    """How many problems convx failed to run."""
    on_gpu = device.type == "cuda"
    dtypes = options.dtype or (("float32",) if options.ablations else _default_dtypes(options.suite, on_gpu))
    layouts = options.layout or (LAYOUTS[:1] if options.ablations else LAYOUTS)
    if "uint8" in dtypes or set(_FILTER_PEERS) & set(options.peers or ()):
        raise ValueError(f"--dtype uint8 and --peers {','.join(_FILTER_PEERS)} belong to --suite filter2d")
    has_gradients = options.suite in ("depthwise", "spread") and not options.ablations
    operations = options.operation or (OPERATIONS if has_gradients else OPERATIONS[:1])
    if not set(operations) <= set(OPERATIONS):
        raise ValueError(f"--operation: the operations of this suite are {', '.join(OPERATIONS)}")
    work: list[Problem]
    if options.suite == "wild":
        work = _wild_problems(options, device.type)
    else:
        chosen = select_cases(SUITES[options.suite](), options.case)
        work = list(problems(chosen, operations, dtypes, layouts, options.batch, on_gpu))
    if not work:
        raise ValueError("these cases are too large for a CPU by default; name a smaller --batch")
    results.ceilings = ceilings(device)
    in_network = options.in_network or options.suite == "wild"
    default_peers = wild.PEERS if options.suite == "wild" else GPU_PEERS if on_gpu else CPU_PEERS
    settings = convolution.Settings(
        device,
        results.ceilings,
        options.peers or default_peers,
        options.algorithm,
        options.all_candidates,
        rounds,
        0 if not on_gpu or options.warm or in_network else _cache_bytes(device),
        in_network,
    )
    planner = Planner(device)
    reference = ""
    run: Callable[..., Iterator[Record]] = partial(convolution.run_problem, planner=planner)
    if options.ablations:
        ablations = ablations_of(options.suite, planner.device, work)
        run, reference = partial(run_ablations, ablations=ablations), ablations.reference[1]
    if options.suite == "wild":
        run = partial(wild.run, planner=planner)
    until = end_of(options.seconds)
    previous: Problem | None = None
    failed = 0
    with tqdm(work, unit="record", disable=None, dynamic_ncols=True) as bar:
        for problem in bar:
            known = results.records.get(_key(problem, settings, reference)) if options.resume else None
            if known and (options.all_candidates or _is_current(known, problem, planner)):
                continue
            if is_over(until, options.seconds, bar):
                break
            if path and previous and previous.case != problem.case:
                results.write(path)
            previous = problem
            records = list(run(problem, settings, report=bar.write))
            failed += not records
            for record in records:
                results.add(record)
                bar.write(report.line(record))
            if len(work) == 1:
                bar.write("again: " + problem.arguments(options.suite, options.device))
            if on_gpu:
                torch.cuda.empty_cache()  # the pools of graphs that are gone serve nobody else
    if path:
        results.write(path)
    return failed


def _wild_problems(options: argparse.Namespace, device: str) -> list[Problem]:
    drawn = ("case", "operation", "dtype", "layout", "batch", "ablations", "all_candidates")
    given = [name for name in drawn if getattr(options, name)]
    if given:
        raise ValueError(f"--suite wild draws its problems: --{given[0].replace('_', '-')} has no say there")
    if options.seed is None:
        raise ValueError("--suite wild needs a --seed, another than any that was looked at before")
    return list(wild.problems(options.seed, options.count, device))


def _default_dtypes(suite: str, on_gpu: bool) -> tuple[str, ...]:
    if not on_gpu:
        return ("float32",)
    # Depthwise convolutions have no use for tensor cores in float32.
    return ("float32", "bfloat16") if suite == "depthwise" else ("float32", "tf32", "bfloat16")


def _key(problem: Problem, settings: convolution.Settings, reference: str) -> tuple[object, ...]:
    """Of the record that is there when a problem has been measured, which of ablations is the reference's."""
    record = problem.fields()
    if reference:
        return key(record | {"chosen_by": "forced", "method": reference})
    return key(record | {"chosen_by": "auto" if settings.algorithm == "auto" else "forced"})


def _is_current(record: Record, problem: Problem, planner: Planner) -> bool:
    return record["chosen_by"] != "auto" or str(record["method"]) == planner.method(problem, "auto")


def _cache_bytes(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 60 << 20))


if __name__ == "__main__":
    sys.exit(main())
