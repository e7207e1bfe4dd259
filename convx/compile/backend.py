"""What torch.compile calls for backend="convx"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx
from torch._inductor.cudagraph_trees import reset_cudagraph_trees

from convx.compile.kept import KeptWeights
from convx.compile.rewriting import Rewritten, copied, rewrite
from convx.compile.watch import CompiledGraph, tell
from convx.dispatch.situation import is_transformed

_log = logging.getLogger("convx.compile")


def convx(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend "convx" of torch.compile: convolutions by convx, everything else by inductor.

    torch.nn's layers need no conversion. Convolutions that the planner would have convx run at the sizes that
    the graph is recorded with become convx's operators, with the activation and the sum behind them where the
    operator does those; the others stay torch's, as inductor has them. Where no gradient is needed, batch
    norms with known statistics go into the filters, convolutions of the same images whose results are added
    become one (as RepVGG and MobileOne are trained), and on GPUs filters are kept in the order that a kernel
    reads, where sizes do not change: that is done anew when weights or statistics are written to, replaced,
    loaded or stepped by an optimizer, and not at all where nobody counts writes: to weights that were made in
    inference mode, or that processes share; convolutions that would have such filters packed at each call are
    left to torch on GPUs. Writes that no version counter sees (`weight.data.add_(1)`) need
    torch.compiler.reset().

    Squeeze-and-excitations, and inverted residual blocks in channels_last, become one operator each where no
    gradient is needed, sizes do not change, and that was measured to be faster than their layers: the
    planner's estimates of blocks can't be held against those of layers. Measured they are by convx.optimize,
    for this process, and, where torch.backends.cudnn.benchmark is on, as the graph is compiled: some tens of
    milliseconds on a GPU for a block and for each of its layers, hundreds on a CPU, kept for later processes,
    which need not ask for it. Poolings are left to inductor, whose maxima have no places written where no
    gradient needs those.

    Args:
        module: the graph.
        example_inputs: what it is recorded with, of any dtype and device.
        mode, options: as inductor takes them; torch.compile passes its own on.

    Returns:
        The compiled graph, a function of its inputs.

    Raises:
        RuntimeError: a mode or an option that inductor does not know; what inductor raises; a convolution on
            a device that convx was not built for. ImportError: convx was built without its planner.

    Logs at INFO what became of each convolution, and of which blocks they are, as "convx.compile".

    >>> import torch, convx
    >>> block = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    >>> compiled, x = torch.compile(block, backend="convx"), torch.randn(1, 8, 16, 16)
    >>> with torch.no_grad():
    ...     bool((compiled(x) - block(x)).abs().max() < 1e-4)
    True
    """
    inductor = torch._TorchCompileInductorWrapper(mode, options, None)  # which knows what may be asked for
    compiler: Callable[..., Any] = compile_fx
    if is_transformed() or _has_transforms(module):
        _log.info("torch.func's transforms: left to inductor")
        return compiler(module, example_inputs, config_patches=inductor.config)  # type: ignore[no-any-return]
    module = copied(module)
    rewritten = rewrite(module)
    _log.info("%s", rewritten)
    patches = {**_layout(rewritten), **inductor.config}
    kept = KeptWeights(rewritten.makings, example_inputs)
    run: Callable[..., Any] = compiler(
        module, [*example_inputs, *rewritten.further_inputs], config_patches=patches
    )
    run = kept.before(run) if rewritten.makings else run
    tell(CompiledGraph(run, rewritten))
    return run


def _reset() -> None:
    """What torch.compiler.reset() calls: as inductor forgets its CUDA graphs."""
    reset_cudagraph_trees()


convx.reset = _reset  # type: ignore[attr-defined]


def _layout(rewritten: Rewritten) -> dict[str, Any]:
    """Operators are given the layout that the graph has: between them torch's convolutions are faster in that
    too than inductor's channels_last and back."""
    return {"layout_optimization": False} if rewritten.keeps_layout and config.layout_optimization else {}


def _has_transforms(module: fx.GraphModule) -> bool:
    """Recorded operators have no forward mode, nor see torch.func's levels as they are entered in a graph."""
    targets = (node.target for node in module.graph.nodes if node.op == "call_function")
    places = (f"{getattr(each, '__module__', '')}.{getattr(each, '__name__', '')}" for each in targets)
    words = ("functorch", "forward_ad", "_make_dual", "dual_level")
    return any(word in place for place in places for word in words)
