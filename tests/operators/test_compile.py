"""torch.compile and torch.export: whole graphs, changing sizes, the same values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import convx

BACKEND = "aot_eager"  # captures and differentiates as inductor does, without its compiler


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = convx.nn.Conv2d(4, 4, 3, padding="same", groups=4, activation="relu6")
        self.second = convx.nn.Conv2d(4, 8, 3, stride=2, groups=4, activation="silu")
        self.rows = convx.nn.Conv1d(8, 8, 3, padding=1, groups=8, activation="relu")

    def forward(self, input: Tensor) -> Tensor:
        hidden = convx.functional.conv2d(input, self.first.weight, padding=((1, 0), (0, 1)), groups=4)
        return self.rows(self.second(self.first(hidden)).flatten(2))


def values_and_gradients(module: nn.Module, call: nn.Module, input: Tensor) -> list[Tensor]:
    input = input.detach().clone().requires_grad_()
    module.zero_grad()
    output = call(input)
    output.square().sum().backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    return [output.detach(), input.grad, *gradients]  # type: ignore[list-item]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_compile_fullgraph(dynamic: bool, channels_last: bool) -> None:
    torch._dynamo.reset()
    module = Net().double()
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend=BACKEND)
    for size in ((2, 4, 9, 8), (3, 4, 11, 12)):
        input = torch.randn(size, dtype=torch.float64)
        if channels_last:
            input = input.contiguous(memory_format=torch.channels_last)
        expected = values_and_gradients(module, module, input)
        result = values_and_gradients(module, compiled, input)
        for one, other in zip(result, expected, strict=True):
            torch.testing.assert_close(one, other)
        with torch.no_grad():
            torch.testing.assert_close(compiled(input), expected[0])


def test_dynamic_sizes_do_not_recompile() -> None:
    torch._dynamo.reset()
    count = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(Net(), fullgraph=True, dynamic=True, backend=count)
    with torch.no_grad():
        for height in range(8, 15):
            compiled(torch.randn(height - 5, 4, height, height + 3))
    assert count.frame_count == 1


@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: lambda w: torch.func.jvp(f, (w,), (w,))[1]])
def test_compiled_transforms_are_right(transform: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    """Recorded operators have no forward mode: such calls run as they are."""
    torch._dynamo.reset()
    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    call = transform(lambda w: convx.functional.conv2d(x, w, padding=1, groups=4).square().sum())
    torch.testing.assert_close(torch.compile(call, backend=BACKEND)(w), call(w), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@torch.compiler.config.patch(force_disable_caches=True)  # not what another checkout has compiled
def test_inductor() -> None:
    torch._dynamo.reset()
    module, input = Net(), torch.randn(2, 4, 9, 8)
    compiled = torch.compile(module, fullgraph=True)
    for one, other in zip(
        values_and_gradients(module, compiled, input),
        values_and_gradients(module, module, input),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_converted_model_compiles() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 8, 1)).double()
    input = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    expected = copy.deepcopy(model)(input)
    convx.convert_(model)
    compiled = torch.compile(model, fullgraph=True, backend=BACKEND)
    torch.testing.assert_close(compiled(input), expected)


def test_export() -> None:
    module, input = Net().eval(), torch.randn(2, 4, 9, 8)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(module, (input,), dynamic_shapes=({0: batch},))
    targets = {node.target for node in program.graph.nodes}
    assert torch.ops.convx.conv2d.default in targets
    other = torch.randn(7, 4, 9, 8)
    torch.testing.assert_close(program.module()(other), module(other))


def test_errors_of_the_fakes_name_the_argument() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        input, weight = torch.empty(1, 4, 6, 6), torch.empty(4, 1, 3, 3)
        with pytest.raises(ValueError, match="stride must be at least 1"):
            convx.functional.conv2d(input, weight, stride=0, groups=4)
        with pytest.raises(ValueError, match="weight: the filter spans 9"):
            convx.functional.conv2d(input, weight, dilation=4, groups=4)


def test_fakes_judge_the_geometry_of_unknown_sizes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    sizes = ShapeEnv()
    with FakeTensorMode(shape_env=sizes):
        height = sizes.create_unbacked_symint()
        torch._check(height > 8)
        input, weight = torch.empty(1, 4, height, 8), torch.empty(4, 1, 3, 3)
        rest = ((1, 1, 1, 1), (1, 1), 4, "none", "auto", 0)
        assert torch.ops.convx.conv2d(input, weight, None, (1, 2), *rest).shape[3] == 4
        with pytest.raises(ValueError, match="stride must be at least 1"):
            torch.ops.convx.conv2d(input, weight, None, (0, 1), *rest)


@pytest.mark.parametrize("forward_within", [False, True])
def test_compiled_autograd_of_an_eager_forward(forward_within: bool) -> None:
    """In one graph, whatever the node of a layer keeps; other sizes are another graph."""
    from torch._dynamo import compiled_autograd

    def whole(graph: torch.fx.GraphModule) -> Callable[..., object]:
        return torch.compile(graph, backend=BACKEND, fullgraph=True)

    torch._dynamo.reset()
    module = Net().double()
    module.first.algorithm = module.rows.algorithm = "depthwise"
    for size in ((2, 4, 9, 8), (1, 4, 11, 8)):
        input = torch.randn(size, dtype=torch.float64)
        expected = values_and_gradients(module, module, input)
        module.zero_grad()
        leaf = input.clone().requires_grad_()
        loss = None if forward_within else module(leaf).square().sum()
        with compiled_autograd._enable(whole):
            (module(leaf).square().sum() if loss is None else loss).backward()
        found = [leaf.grad, *(parameter.grad for parameter in module.parameters())]
        for one, other in zip(found, expected[1:], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.gpu
def test_compile_gpu() -> None:
    torch._dynamo.reset()
    module, input = Net().cuda(), torch.randn(2, 4, 9, 8, device="cuda")
    compiled = torch.compile(module, fullgraph=True, backend=BACKEND)
    for one, other in zip(
        values_and_gradients(module, compiled, input),
        values_and_gradients(module, module, input),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
def test_cuda_graph() -> None:
    layer = convx.nn.Conv2d(8, 8, 3, padding=1, groups=8).cuda()
    input = torch.randn(2, 8, 14, 14, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        layer(input)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = layer(input)
    input.copy_(torch.randn_like(input))
    graph.replay()
    with torch.no_grad():
        torch.testing.assert_close(output, layer(input))
