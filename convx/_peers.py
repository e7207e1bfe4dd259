"""Other engines that run a network on a CPU, to be timed beside torch and convx.

Each has a process of its own: its threads spin while they wait for work, as torch's do, and so would spoil
what is measured beside them.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convx._errors import reason_of

_QUIET_S = 0.02  # after which threads of others have stopped spinning
_LOAD_S = 300.0  # that loading a network may take

Run = Callable[[Any], Any]


def _onnx_runtime(file: str, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def _openvino(file: str, threads: int) -> Run:
    import openvino

    core = openvino.Core()
    # By itself it rounds products to bfloat16 where the CPU multiplies those.
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    options |= {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}
    compiled = core.compile_model(core.read_model(file), "CPU", options)
    return lambda images: compiled([images])[0]


# What each is imported as, and what loads a network from an ONNX file.
ENGINES: dict[str, tuple[str, Callable[[str, int], Run]]] = {
    "ONNX Runtime": ("onnxruntime", _onnx_runtime),
    "OpenVINO": ("openvino", _openvino),
}


def _serve(pipe: Any, load: Callable[[str, int], Run], file: str, images: Any, threads: int) -> None:
    """A process: the result first, then what so many calls take, as often as it is asked."""
    try:
        run = load(file, threads)
        pipe.send(run(images))
        while True:
            repeats = pipe.recv()
            begin = time.perf_counter()
            for _ in range(repeats):
                run(images)
            pipe.send(time.perf_counter() - begin)
    except EOFError:  # nobody asks any more
        return
    except Exception as error:
        pipe.send(error)


class Peer:
    """A network in another engine, loaded: convx.tune.turns asks it for times."""

    def __init__(self, load: Callable[[str, int], Run], file: str, x: Tensor) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, load, file, x.numpy(), torch.get_num_threads())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.result = torch.from_numpy(self._answer())

    def _answer(self) -> Any:
        if not self._pipe.poll(_LOAD_S):
            raise TimeoutError(f"no answer in {_LOAD_S:.0f} s")
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise RuntimeError("its process has ended") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def us(self, repeats: int) -> float:
        """Of a call, in so many."""
        time.sleep(_QUIET_S)
        self._pipe.send(repeats)
        seconds = self._answer()
        time.sleep(_QUIET_S)
        return float(seconds) * 1e6 / repeats

    def close(self) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def peers(
    model: nn.Module, x: Tensor, names: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, Peer], dict[str, str]]]:
    """The engines that are installed, with the model and images loaded, and why others of them can't run it.

    Of models and images on a CPU alone: else there are none.
    """
    found: dict[str, Peer] = {}
    problems: dict[str, str] = {}
    installed = [
        name for name in (names or ENGINES) if importlib.util.find_spec(ENGINES[name][0]) is not None
    ]
    with ExitStack() as stack:
        if installed and x.device.type == "cpu":
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            file = str(Path(folder) / "network.onnx")
            try:
                _export(model, x, file)
            except Exception as error:  # of the exporter, or for want of it
                problems = dict.fromkeys(installed, f"no ONNX of it: {reason_of(error)}")
                installed = []
            for name in installed:
                try:
                    found[name] = Peer(ENGINES[name][1], file, x)
                    stack.callback(found[name].close)
                except Exception as error:
                    problems[name] = reason_of(error)
        yield found, problems


def _export(model: nn.Module, x: Tensor, file: str) -> None:
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, (x.clone(),), dynamo=True, verbose=False)
    assert program is not None
    program.save(file)
