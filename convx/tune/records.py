"""Tuning records: one JSON file for each problem, device and set of versions.

Each is written whole under a name made of what it is for, so that processes which tune at the same time lose
nothing. A record of another convx, torch, processor or setting is passed over; so is one that is damaged or
names an algorithm that there is not, with a warning for each.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from convx import _libraries
from convx.dispatch import packed
from convx.tune import generated, kernels
from convx.tune.folder import (
    cache_folder,
    files,
    read_file,
    warn_once,
    warn_where_unreadable,
    write_whole,
)

FORMAT = "convx tuning record 1"
TUNE = "convx.tune"
FIRST_CALL = "the first call (torch.backends.cudnn.benchmark)"
_MOST_RECORDS = 4096  # that are read; the newest
_MOST_BYTES = 1 << 20  # of one file


class _Kind(NamedTuple):
    """Of problems: its type in _core, and its fields."""

    type: str
    fields: tuple[str, ...]
    # Beside them, each where the field that it belongs to says that a problem has such: records from before
    # there were any hold still.
    more: dict[str, str]


_CONVOLUTION = _Kind(
    "Problem",
    (
        *("operation", "dtype", "layout", "activation", "bias", "allow_tf32", "batch", "in_channels"),
        *("in_height", "in_width", "out_channels", "filter_height", "filter_width", "groups"),
        *("stride", "dilation", "padding"),
    ),
    {name: name for name in ("scale", "residual", "residual_after_activation")},
)
# By the operation, of problems that are no convolution.
_KINDS = {
    "filter2d": _Kind(
        "FilterProblem",
        (
            *("operation", "dtype", "border", "images", "height", "width"),
            *("filters", "filter_height", "filter_width"),
        ),
        {},
    ),
    "inverted_residual": _Kind(
        "BlockProblem",
        (
            *("operation", "dtype", "activation", "output_activation", "residual", "layout", "batch"),
            *("channels", "height", "width", "expanded_channels", "out_channels"),
            *("expand_filter", "expand_stride", "filter", "stride"),
        ),
        dict.fromkeys(("squeezed_channels", "squeeze_activation", "gate"), "squeezed_channels"),
    ),
    "squeeze_excite": _Kind(
        "ExciteProblem",
        (
            *("operation", "dtype", "layout", "activation", "gate"),
            *("batch", "channels", "height", "width", "squeezed_channels"),
        ),
        {},
    ),
}


@dataclass(frozen=True)
class Record:
    """What convx.tune found for one problem."""

    environment: dict[str, Any]
    problem: dict[str, Any]
    """The fields of _core.Problem, shape, dtype, layout and TF32 among them, or another kind of problem's."""
    algorithm: str
    """The winner, as explain names its plan."""
    us: float
    """Its time, in microseconds."""
    candidates: dict[str, float]
    """Every contender's time; those that were stopped early have what they had then."""
    kernel: dict[str, Any] | None = None
    """Where the winner was generated: what convx.tune.generated needs to have it again."""
    by: str = TUNE
    """Who measured: convx.tune, or a first call, more quickly."""

    @property
    def path(self) -> Path:
        return path_of(self.environment, self.problem)


def folder() -> Path:
    return cache_folder() / "records"


@functools.cache
def _processor() -> str:
    """The CPU's model, which tells machines with a common home folder apart."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _versions() -> dict[str, Any]:
    """What every record of this process has in common."""
    from convx import __version__

    return {
        "convx": __version__,
        "torch": torch.__version__,
        "gpu_runtime": torch.version.cuda or torch.version.hip or "",
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def environment_of(device: Any) -> dict[str, Any]:
    """What a record for a _core.Device depends on beside the problem."""
    key = _libraries.core().tuning_key(device)
    return {"device": key, "processor": _processor() if device.backend == "cpu" else "", **_versions()}


def _kind(operation: str) -> _Kind:
    return _KINDS.get(operation, _CONVOLUTION)


def _type_of(operation: str) -> Any:
    return getattr(_libraries.core(), _kind(operation).type)


def problem_fields(problem: Any) -> dict[str, Any]:
    """A problem of any kind as plain data."""
    kind = _kind(problem.operation)
    more = (name for name, of in kind.more.items() if getattr(problem, of))
    fields = {name: getattr(problem, name) for name in (*kind.fields, *more)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _problem_of(fields: dict[str, Any]) -> Any:
    """The problem that has these fields."""
    operation = fields["operation"]
    given = {name: value for name, value in fields.items() if name != "operation" or operation not in _KINDS}
    return _type_of(operation)(**given)


def path_of(environment: dict[str, Any], problem: dict[str, Any]) -> Path:
    text = json.dumps([FORMAT, environment, problem], sort_keys=True)
    return folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _is_plain(value: Any) -> bool:
    """Of the types that fields have, and such that it fits into a line of text."""
    if isinstance(value, list):
        return all(isinstance(each, int) for each in value)
    return isinstance(value, int) or (isinstance(value, str) and value.isprintable())


def _are_fields(fields: Any) -> bool:
    return isinstance(fields, dict) and all(_is_plain(each) for item in fields.items() for each in item)


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value > 0


def _are_times(candidates: Any) -> bool:
    return isinstance(candidates, dict) and all(
        _is_plain(name) and _is_time(us) for name, us in candidates.items()
    )


def _parse_file(path: Path) -> Record:
    """Raises OSError or ValueError for a file that is no whole record."""
    try:
        data = json.loads(read_file(path, _MOST_BYTES))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise ValueError(f"it is not a {FORMAT}")
    return parse(data)


def parse(fields: Any) -> Record:
    """The record that has these fields, of a file. ValueError where some are missing or mean nothing."""
    try:
        record = Record(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from None
    is_typed = (
        _are_fields(record.environment)
        and isinstance(record.environment.get("device"), str)
        and _are_fields(record.problem)
        and isinstance(record.algorithm, str)
        and _is_plain(record.algorithm)
        and _is_time(record.us)
        and _are_times(record.candidates)
        and (record.kernel is None or _are_fields(record.kernel))
        and record.by in (TUNE, FIRST_CALL)
    )
    kind = _kind(str(record.problem.get("operation")))
    names = {name for name in record.problem if name not in kind.more}
    if not is_typed or names != set(kind.fields):
        raise ValueError("fields are missing or of another type")
    return record


def read(path: Path) -> Record | None:
    """A file's record; None, with a warning, where it is there and not whole."""
    try:
        return _parse_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        _pass_over(path, error)
        return None


def _pass_over(path: Path, reason: object) -> None:
    warn_once(
        f"record {path}",
        f"convx passes over the tuning record {path}: {reason}; delete it, or run convx.tune again",
    )


def find(problem: Any, device: Any) -> Record | None:
    """The record of a problem on a device under today's versions and settings."""
    environment, fields = environment_of(device), problem_fields(problem)
    record = read(path_of(environment, fields))
    if record is None or record.environment != environment or record.problem != fields:
        return None
    return record


def save(record: Record) -> bool:
    """Whether it could be written; what it says holds in this process either way, once remembered."""
    text = json.dumps({"format": FORMAT, **asdict(record)}, indent=1)
    return write_whole(record.path, text.encode())


def _text(record: Record) -> str:
    """As csrc/choose/tuned.h reads it."""
    found = {"device": record.environment["device"], "algorithm": record.algorithm, "us": record.us}
    return fields_text({**record.problem, **found, "by": record.by})


def fields_text(fields: dict[str, Any]) -> str:
    """As csrc/problem/record.h reads it."""
    lines = []
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            value = " ".join(str(each) for each in value)
        elif isinstance(value, bool):
            value = int(value)
        lines.append(f"{name} = {value}")
    return "\n".join(lines)


_remembered: dict[str, Record] = {}  # by the device and the problem


def _key(device: str, problem: dict[str, Any]) -> str:
    return json.dumps([device, problem], sort_keys=True)


def remembered(problem: Any, device: Any) -> Record | None:
    """The record whose choice calls of a problem take by now."""
    return _remembered.get(_key(_libraries.core().tuning_key(device), problem_fields(problem)))


def all_remembered() -> tuple[Record, ...]:
    return tuple(_remembered.values())


def is_remembered(record: Record) -> bool:
    """Whether there is a choice for its problem, this or another."""
    return _key(record.environment["device"], record.problem) in _remembered


def remember(record: Record) -> None:
    """Lets calls, explain and convert_ take the record's choice from now on.

    Raises ValueError or RuntimeError for a record that describes no problem.
    """
    _libraries.core().remember_tuned(_text(record))
    _remembered[_key(record.environment["device"], record.problem)] = record
    packed.forget_all()  # filters are packed for the plan that was taken before


_known_kernels: set[str] = set()  # of which this CPU has a plan


def _require_known(record: Record) -> None:
    """ValueError where the record's algorithm does not exist. Other devices than this CPU are not to be asked
    while convx is imported: of theirs the method alone can be told."""
    core = _libraries.core()
    kernel = record.algorithm.split(" ", 1)[0]
    method = kernel.split("/", 1)[0]
    methods = [row["name"] for row in core.methods(_type_of(record.problem["operation"]))]
    if method not in methods:
        raise ValueError(f"no method is called '{method}', the methods are {', '.join(methods)}")
    cpu = core.Device.host_cpu(torch.get_num_threads())
    if record.environment["device"] != core.tuning_key(cpu):
        return
    problem = _problem_of(record.problem)
    able, reason = core.supports(method, problem, cpu)
    if not able:
        raise ValueError(f"'{record.algorithm}' can't run {problem.describe()}: {reason}")
    if kernel not in _known_kernels:
        kernels_of_it = {plan.name.split(" ", 1)[0] for plan in core.candidates(method, problem, cpu)}
        _known_kernels.update(kernels_of_it)
        if kernel not in kernels_of_it:
            names = ", ".join(sorted(kernels_of_it))
            raise ValueError(f"no kernel is called '{kernel}'; {problem.describe()} has {names}")


def restore(record: Record) -> bool:
    """remember, for a record of another process: brings back the generated kernel, if it chose one. False
    where the cache no longer has that, or, with a warning, where the record describes no problem, kernel or
    algorithm; the problem is then to be tuned again."""
    try:
        _require_known(record)
        if record.kernel is not None:
            image = kernels.read(str(record.kernel.get("key")))
            if image is None:
                return False
            generated.remember(record.kernel, fields_text(record.problem), image)
        remember(record)
    except (RuntimeError, TypeError, ValueError) as error:
        _pass_over(record.path, error)
        return False
    return True


def forget() -> None:
    """Lets calls go by predictions again, in this process; the files stay."""
    _libraries.core().forget_tuned()
    _remembered.clear()
    packed.forget_all()


def is_of_here(record: Record) -> bool:
    """Of these versions and settings, and this processor where it is for one."""
    if record.environment.get("processor") not in ("", _processor()):
        return False
    return all(record.environment.get(key) == value for key, value in _versions().items())


def load() -> int:
    """Remembers every record of this machine, these versions and settings; how many there are.

    Which GPU a record is for is seen when it is used: asking CUDA here would start it in every process.
    """
    if _libraries.core_problem():
        return 0
    count = 0
    warn_where_unreadable(folder())
    for *_, path in reversed(files(folder(), "*.json")[-_MOST_RECORDS:]):
        record = read(path)
        if record is None or not is_of_here(record):
            continue
        if path != path_of(record.environment, record.problem):
            _pass_over(path, "it is named for another problem")
            continue
        count += restore(record)
    return count
