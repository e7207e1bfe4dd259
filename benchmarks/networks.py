"""Whole networks, torch's layers and converted: inference, eager and as a CUDA graph, and training steps;
what convx.optimize and torch.compile make of them; and with layers of one sort alone converted."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from benchmarks import memory, network_kinds
from benchmarks.network_kinds import DEFAULT_KINDS, KINDS, Networks, error, is_training, ways
from benchmarks.peers import tf32
from benchmarks.results import Record, geomean, precision
from benchmarks.suites import LAYOUTS
from benchmarks.turns import between, over_torch, slower_rows
from convx.tune import records
from convx.tune.turns import Compared, compare, turn_of

DEFAULT_NETWORKS = ("mobilenet_v2", "mnasnet1_0", "resnet18", "resnet50", "efficientnet_b0", "convnext_tiny")
# ShuffleNetV2 and SqueezeNet in the sizes that the papers have layers of.
NETWORKS = (
    *DEFAULT_NETWORKS,
    *("mobilenet_v3_large", "shufflenet_v2_x0_5", "vgg19", "squeezenet1_0", "googlenet"),
)
# By the type of a device.
DEFAULT_BATCHES, BATCHES = {"cuda": (1, 64), "cpu": (1,)}, {"cuda": (1, 8, 64), "cpu": (1, 8)}
DEFAULT_PRECISIONS = {"cuda": ("float32", "bfloat16"), "cpu": ("float32",)}
PRECISIONS = {"cuda": ("float32", "tf32", "bfloat16"), "cpu": ("float32",)}
_ROUND_US = 30000  # of one contender
_FEWEST_TURNS = 2  # in a round
_TRAINING_ROUNDS = 3  # for each round of the others: steps differ more from one another


def cases(device: torch.device) -> tuple[str, ...]:
    """All there are: "convnext_tiny b64 bfloat16 channels_last"."""
    return _cases(NETWORKS, BATCHES[device.type], PRECISIONS[device.type])


def default_cases(device: torch.device) -> tuple[str, ...]:
    """What fits into ten minutes on a GPU."""
    return _cases(DEFAULT_NETWORKS, DEFAULT_BATCHES[device.type], DEFAULT_PRECISIONS[device.type])


def _cases(names: Sequence[str], batches: Sequence[int], precisions: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} b{batch} {each} {layout}"
        for name in names
        for batch in batches
        for each in precisions
        for layout in LAYOUTS
    )


def kinds_of(device: torch.device, asked: Sequence[str] | None) -> list[str]:
    """Those of a device, of the ones that are asked for or else the default ones."""
    unknown = [kind for kind in asked or () if kind not in KINDS]
    if unknown:
        raise ValueError(f"--operation {unknown[0]}: the kinds of this suite are {', '.join(KINDS)}")
    found = [kind for kind in asked or DEFAULT_KINDS if kind != "inference_graph" or device.type == "cuda"]
    if not found:
        raise ValueError("--operation inference_graph belongs to GPUs")
    return found


def run(case: str, device: torch.device, rounds: int, kinds: Sequence[str]) -> Iterator[Record]:
    """A record for every kind of run that has anything to it in this network, all contenders timed in
    turns."""
    networks = Networks(case, device)
    for kind in filter(networks.have, kinds):
        with tf32(" tf32 " in case), _apart(kind):
            measured = _measured(case, kind, networks, rounds)
        yield measured


def _measured(case: str, kind: str, networks: Networks, rounds: int) -> Record:
    device, on_gpu = networks.device, networks.device.type == "cuda"
    exact = None if is_training(kind) else networks.exact
    calls: dict[str, Callable[[], object]] = {}
    peaks: dict[str, int] = {}
    errors: dict[str, float] = {}
    for name, make in ways(kind, networks).items():
        before = _held(device) if on_gpu else 0
        way = make()
        calls[name] = way.call
        result = way.call()
        if exact is not None:
            errors[name] = float(f"{error(result, exact):.2e}")
        del result
        if on_gpu:
            gc.collect()  # what it was made of
            way.forget()
            peaks[name] = memory.peak(way.call, device) - before
    times = _TRAINING_ROUNDS if is_training(kind) else 1
    compared = _compared(calls, device, times * rounds)
    more = {"peak_bytes": peaks, "error": errors}
    return record(case, kind, compared) | {name: value for name, value in more.items() if value}


def _held(device: torch.device) -> int:
    """Bytes, without those of networks that are gone, which are in cycles, and of their calls."""
    gc.collect()
    memory.forget_workspaces()
    return memory.used(device)


def _apart(kind: str) -> AbstractContextManager[None]:
    """What one kind leaves behind is not what the others are to show."""
    if kind == "optimized":
        return _measured_choices()
    return _compiler() if kind.startswith("compiled") else nullcontext()


_choices: list[records.Record] = []


@contextmanager
def _measured_choices() -> Iterator[None]:
    """Plans that convx.optimize has measured are not what the other rows are to show. The other layout's are
    kept for the case that has it."""
    for each in _choices:
        records.remember(each)
    try:
        yield
    finally:
        _choices[:] = records.all_remembered()
        records.forget()


@contextmanager
def _compiler() -> Iterator[None]:
    """That has compiled nothing: of a network's code it keeps what it compiled for others like it, eight at
    most."""
    torch.compiler.reset()
    try:
        yield
    finally:
        torch.compiler.reset()


def record(case: str, kind: str, compared: Compared) -> Record:
    _, batch, precision, layout = case.split(" ")
    return {
        "case": case,
        "operation": kind,
        "dtype": "float32" if precision == "tf32" else precision,
        "tf32": precision == "tf32",
        "layout": layout,
        "batch": int(batch[1:]),
        "shape": {"size": network_kinds.SIZE},
        "warm": True,
        "convx_us": float(f"{compared.us['convx']:.4g}"),
        "method": "call",
        "chosen_by": "auto",
        "peers_us": {name: float(f"{us:.4g}") for name, us in compared.us.items() if name != "convx"},
        "over_torch": over_torch(compared),
    }


def _compared(calls: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> Compared:
    compare(calls, device, 1, 3)  # cuDNN's and convx's choices, and memory
    repeats, turn_us = turn_of(calls.values(), device)
    turns = max(_FEWEST_TURNS, round(_ROUND_US / turn_us))
    return compare(calls, device, rounds * turns, repeats)


def _us_of(peer: str) -> Callable[[Record], str]:
    return lambda record: f"{record['peers_us'][peer]:.0f}" if peer in record["peers_us"] else ""


def _mb_of(name: str) -> Callable[[Record], str]:
    return lambda record: f"{record['peak_bytes'][name] / 2**20:.0f}" if "peak_bytes" in record else ""


def _error_of(name: str) -> Callable[[Record], str]:
    return lambda record: f"{record['error'][name]:.1e}" if "error" in record else ""


_NOTE = (
    "MB: the most that torch's allocator has given out at one moment of a call, weights and what is kept for "
    "the call in it, images not. Errors: the largest deviation from float64, of the largest value there."
)
_NOTE_ON_FLOAT32 = (
    "float32 here is what torch does by default on a GPU, where convolutions, torch's and convx's, may round "
    "products to TF32."
)
# By their headings, what not all records have; columns that none has are left out.
_FURTHER = {
    "torch uncompiled us": _us_of("torch_eager"),
    "torch MB": _mb_of("torch"),
    "convx MB": _mb_of("convx"),
    "torch's error": _error_of("torch"),
    "convx's error": _error_of("convx"),
}


def _remarks(records: list[Record]) -> list[str]:
    """Records of a GPU without peaks are from before precisions were set apart."""
    on_gpu = any("torch_graph" in record["peers_us"] for record in records)
    is_older = any(record["dtype"] == "float32" and "peak_bytes" not in record for record in records)
    return [slower_rows(records), *(["", _NOTE_ON_FLOAT32] if on_gpu and is_older else [])]


def table(records: list[Record]) -> str:
    further = {name: cell for name, cell in _FURTHER.items() if any(map(cell, records))}
    known = "network | run | torch us | convx us | convx / torch | between | torch's graph us"
    head = " | ".join([known, *further])
    ruler = "|---|---|---:|---:|---:|---|---:|" + "---:|" * len(further)
    lines = [*_remarks(records), *(["", _NOTE] if further else []), "", f"| {head} |", ruler]
    for record in records:
        torch_us, convx_us = record["peers_us"]["torch"], record["convx_us"]
        cells = (_us_of("torch_graph")(record), *(cell(record) for cell in further.values()))
        lines.append(
            f"| {record['case']} | {record['operation'].replace('_', ' ')} | {torch_us:.0f} | {convx_us:.0f} "
            f"| {convx_us / torch_us:.2f} | {between(record)} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


_BESIDE = {"torch": "", "torch_graph": " beside torch's graph", "torch_eager": " beside torch uncompiled"}


def short_table(records: list[Record]) -> str:
    """Over all networks, of the default set and what is compiled of it."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        is_default = record["batch"] in DEFAULT_BATCHES["cuda"] and not record["tf32"]
        if not is_default or record["operation"] not in (*DEFAULT_KINDS, "compiled"):
            continue
        for peer, peer_us in record["peers_us"].items():
            kind = record["operation"].replace("_", " ") + _BESIDE[peer]
            label = (kind, str(record["batch"]), precision(record), record["layout"])
            groups.setdefault(label, []).append(peer_us / record["convx_us"])
    lines = [
        *_remarks(records),
        "",
        "| run | batch | dtype | layout | networks | times faster | least | most |",
        "|---|---:|---|---|---:|---:|---:|---:|",
    ]
    for group, faster in sorted(groups.items()):
        figures = (geomean(faster), min(faster), max(faster))
        cells = (*group, str(len(faster)), *(f"{each:.2f}" for each in figures))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
