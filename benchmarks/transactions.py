"""Memory transactions of filters on one image: `python -m benchmarks.transactions [--ncu]`.

Counts on the host executor what the forms of filter2d ask of global memory: the loads and stores of warps,
as the paper on memory transactions does, and the sectors of 32 bytes that these touch, a few percent too many
where lanes at an image's border go other ways. With --ncu Nsight Compute reads a GPU's own counters, for NPP,
im2col and torch too. Into results/transactions.json, which the paper's page reads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import filter2d, host_executor, nsight
from benchmarks.environment import environment
from benchmarks.results import RESULTS

PATH = RESULTS / "transactions.json"
EXECUTOR = "host executor"
DEVICE = "h200"  # whose plans are counted
FILTERS = (3, 5)
COUNTED_SIZES = (256, 512, 1024)  # larger images have as many more of all
PEERS = ("npp", "im2col", "torch")
# Of a GPU's first and second cache: what warps ask of global memory, and what is read beyond the first cache,
# textures included.
METRICS = {
    "loads": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "stores": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "sectors_beyond_l1": "lts__t_sectors_srcunit_tex_op_read.sum",
}
Record = dict[str, Any]


def plans(case: filter2d.Case) -> list[str]:
    """The paper's forms: with the most result rows of a warp, so that the taps count the least, `both` with
    any number of a thread's and `row_reuse` with four. And convx's own."""
    found = []
    for form in filter2d.forms(case, "float32", DEVICE):
        some = [name for name in form.rows if name.endswith("chunk_rows=16")] or list(form.rows)
        if form.name in (*filter2d.FORMS, "strip"):
            found += some if form.name == "both" else [n for n in some if form.rows[n] in (1, 4)] or some
    return sorted(found)


def cases(sizes: Iterable[int]) -> list[filter2d.Case]:
    return [filter2d.Case(size, extent) for extent in FILTERS for size in sizes]


def counted(case: filter2d.Case, program: Path) -> Iterator[Record]:
    """On the host executor, whose program also checks the results."""
    size, extent = case.size, case.filter
    lines = [
        f"device={DEVICE} size={size},{size} filter={extent},{extent} padding={extent // 2} "
        f"output={size},{size} only={name.replace(' ', '+')},"
        for name in plans(case)
    ]
    for text, counts in host_executor.counted(program, lines):
        yield _record(EXECUTOR, case, text.partition(",")[0], counts._asdict())


def _record(by: str, case: filter2d.Case, contender: str, numbers: dict[str, int]) -> Record:
    return {"by": by, "size": case.size, "filter": case.filter, "contender": contender, **numbers}


def _contenders() -> Iterator[tuple[filter2d.Case, str, Callable[[int], Any]]]:
    """On the GPU, in the order in which they are profiled; what can't be had is left out."""
    device = torch.device("cuda")
    peers = filter2d.available_peers(PEERS, lambda line: print(line, file=sys.stderr))
    for case in cases(filter2d.SIZES):
        image = torch.randn(case.size, case.size, device=device)
        weights = torch.randn(case.filter, case.filter, device=device)
        for name, call in filter2d.contenders([image], weights, plans(case), peers).items():
            yield case, name, call


def measured(by: str) -> Iterator[Record]:
    """By the GPU's counters, added up over the kernels of a call."""
    calls = nsight.counted("benchmarks.transactions", list(METRICS.values()))
    for (case, name, _), kernels in zip(_contenders(), calls, strict=True):
        yield _record(by, case, name, added_up(kernels))


def added_up(kernels: Iterable[nsight.Kernel]) -> dict[str, int]:
    """The metrics of a call."""
    numbers = [found for _, found in kernels]
    return {name: round(sum(each[metric] for each in numbers)) for name, metric in METRICS.items()}


def load(path: Path = PATH) -> list[Record]:
    """The committed records; none where there is no such file."""
    records: list[Record] = json.loads(path.read_text())["records"] if path.is_file() else []
    return records


def write(path: Path, by: str, records: Iterable[Record]) -> None:
    """In the place of what the file has by the same."""
    head = json.loads(path.read_text()) if path.is_file() else {"environments": {}, "records": []}
    kept = [record for record in head["records"] if record["by"] != by]
    if by != EXECUTOR:
        head["environments"][by] = environment(torch.device("cuda"))
    text = ",\n  ".join(json.dumps(record) for record in [*kept, *records])
    environments = json.dumps(head["environments"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n "environments": {environments},\n "records": [\n  {text}\n ]\n}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--ncu", action="store_true", help="on this machine's GPU, by Nsight Compute")
    parser.add_argument("--output", type=Path, default=PATH)
    parser.add_argument(nsight.UNDER_PROFILER, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.under_profiler:
        return nsight.run_under_profiler([partial(call, 0) for _, _, call in _contenders()])
    if options.ncu:
        by = torch.cuda.get_device_name()
        return write(options.output, by, list(measured(by)))
    program = host_executor.built("filter2d_borders")
    found = [record for case in cases(COUNTED_SIZES) for record in counted(case, program)]
    return write(options.output, EXECUTOR, found)


if __name__ == "__main__":
    main()
