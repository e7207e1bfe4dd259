"""ExciteProblem: what it describes, which plans it has, and that auto takes what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convx import _core
from convx.tune import records

H200 = _core.Device.known_device("h200")
DEVICES = [_core.Device.host_cpu(2), *map(_core.Device.known_device, _core.Device.known_names())]


def excite(**changes: Any) -> _core.ExciteProblem:
    fields = {"dtype": "bfloat16", "batch": 4, "channels": 24, "height": 28, "width": 30}
    return _core.ExciteProblem(**{**fields, "squeezed_channels": 6, **changes})


def test_counts_and_names() -> None:
    made = excite(layout="channels_last", activation="silu", gate="hardsigmoid")
    assert made.operation == "squeeze_excite"
    assert made.bytes == 2 * (2 * 4 * 24 * 28 * 30 + 2 * 24 * 6)
    assert made.flops == 2 * 4 * 24 * 28 * 30 + 4 * 4 * 24 * 6
    assert made.describe() == ("squeeze_excite bfloat16 channels_last 4x24x28x30 by 6, silu, hardsigmoid")
    assert repr(made) == f"ExciteProblem({made.describe()})"


def test_equality_and_hash() -> None:
    assert excite() == excite() and hash(excite()) == hash(excite())
    for change in (
        *({"batch": 5}, {"channels": 32}, {"height": 29}, {"width": 29}, {"squeezed_channels": 8}),
        *({"dtype": "float16"}, {"layout": "channels_last"}, {"activation": "silu"}, {"gate": "hardsigmoid"}),
    ):
        assert excite(**change) != excite(), change
        assert hash(excite(**change)) != hash(excite()), change
    other = _core.FilterProblem(images=1, height=4, width=4, filter_height=3, filter_width=3)
    assert excite() != other and excite() not in [other]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": -1}, "input: batch must be at least 0, got -1"),
        ({"channels": 0}, "input: channels must be at least 1, got 0"),
        ({"squeezed_channels": 0}, "squeezed_channels must be at least 1, got 0"),
        ({"gate": "tanh"}, "gate must be one of sigmoid, hardsigmoid; got 'tanh'"),
        ({"batch": 1 << 40, "height": 1 << 40}, "input"),
    ],
)
def test_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        excite(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float64"}, "dtype must be float32, float16 or bfloat16"),
        ({"channels": 20}, "channels must be a multiple of 8"),
        ({"channels": 8192}, "at most 4096, not 8192"),
        ({"batch": 0}, "the batch is empty"),
        ({"height": 1 << 20, "width": 1 << 10}, "31 bits"),
        ({"squeezed_channels": 1 << 20}, "too many for a block's shared memory"),
    ],
)
def test_what_the_kernel_does_not_take(changes: dict[str, Any], reason: str) -> None:
    able, why = _core.supports("squeeze_excite", excite(**changes), H200)
    assert not able and reason in why
    assert _core.supports("native", excite(**changes), H200) == (True, "")


def test_its_methods() -> None:
    assert [row["name"] for row in _core.methods(_core.ExciteProblem)] == ["squeeze_excite", "native"]


def test_what_was_measured_is_taken() -> None:
    problem = excite(batch=7)
    assert _core.select(problem, H200).plan.method == "native"
    plan = _core.candidates("squeeze_excite", problem, H200)[0].name
    fields = {"device": _core.tuning_key(H200), "algorithm": plan, "us": 5.0}
    try:
        _core.remember_tuned(records.fields_text({**records.problem_fields(problem), **fields}))
        chosen = _core.select(problem, H200).plan
        assert chosen.name == plan and chosen.predicted_us == 5.0
    finally:
        _core.forget_tuned()
    assert _core.select(problem, H200).plan.method == "native"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    layout=st.sampled_from(["nchw", "channels_last"]),
    batch=st.integers(1, 512),
    channels=st.integers(1, 256).map(lambda vectors: 8 * vectors),
    height=st.integers(1, 400),
    width=st.integers(1, 400),
    squeezed=st.integers(1, 512),
)
def test_plans(
    dtype: str, layout: str, batch: int, channels: int, height: int, width: int, squeezed: int
) -> None:
    """Each fits the device, and only sm_90 and later has clusters."""
    problem = excite(
        **{"dtype": dtype, "layout": layout, "batch": batch, "channels": channels, "height": height},
        **{"width": width, "squeezed_channels": squeezed},
    )
    for device in DEVICES:
        if not _core.supports("squeeze_excite", problem, device)[0]:
            assert device.backend != "cpu"
            continue
        plans = _core.candidates("squeeze_excite", problem, device)
        assert plans and all(plan.predicted_us > 0 for plan in plans)
        ranks = {dict(plan.tiling).get("ranks", 1) for plan in plans}
        assert ranks == {1} or device.name in ("NVIDIA H200", "NVIDIA B200")
        assert max(ranks) <= 8 or batch * max(ranks) <= device.multiprocessors


def test_clusters_of_sixteen_are_for_few_images() -> None:
    """Of many, they would wait for places beside one another."""
    for batch, most in ((1, 16), (8, 16), (9, 8), (64, 8)):
        problem = excite(
            **{"dtype": "float32", "layout": "channels_last", "batch": batch, "channels": 96, "height": 56},
            **{"width": 56, "squeezed_channels": 4},
        )
        plans = _core.candidates("squeeze_excite", problem, H200)
        assert max(dict(plan.tiling)["ranks"] for plan in plans) == most
