"""Any stride, padding and dilation that 64 bits hold: right results, or an error, never the end of the
process, and no more memory than the tensors explain."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from extreme import MOST, Extreme
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from processes import run_python

DEPTHWISE = Extreme(1, 1, 1, (8, 8), (3, 3), (1, 1), (0, 0, 0, 0), (1, 1))


def square(stride: int, padding: int = 0, dilation: int = 1, base: Extreme = DEPTHWISE) -> Extreme:
    """Of arguments that are the same along both axes, or along the one that there is."""
    if base.size[0] == 1:
        return replace(base, stride=(1, stride), padding=(0, 0, padding, padding), dilation=(1, dilation))
    return replace(base, stride=(stride,) * 2, padding=(padding,) * 4, dilation=(dilation,) * 2)


def survives(folder: Path, cases: list[Extreme]) -> None:
    path = folder / "cases.json"
    path.write_text(json.dumps([asdict(case) for case in cases]))
    done = run_python("import extreme; extreme.main()", str(path))
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"ended by {done.returncode} in {last}\n{done.stderr[-2000:]}"
    assert last == ["DONE"]


ARGUMENTS = [
    (2**62,),
    (MOST,),
    (2**32,),
    (2**31 - 1, 2**31 - 1, 2**30),
    (1, 10**5, 10**5),
    (3, 5000, 5000),
    (2**40, 2**40),
    (2**31, 2**31, 2**31),
    (2**62, 2**61, 2**61),
    (1, 2**40, 2**40),
    (1, 2**61, 1),
    (1, 2**40, 1),
    (1, 2**20, 1),
    (1, 2**62, 2**62),
    (1, MOST, 1),
    (1, 0, MOST),
]
LAYERS = [
    DEPTHWISE,
    replace(DEPTHWISE, size=(1, 8), filter=(1, 3), channels=4, filters=8, groups=4),
    replace(DEPTHWISE, channels=20, filters=20, groups=20, channels_last=True),
    replace(DEPTHWISE, channels=3, filters=6, groups=3, channels_last=True),
    replace(DEPTHWISE, channels=18, filters=18, groups=18, dtype="bfloat16"),
    replace(DEPTHWISE, channels=2, filters=2, groups=2, dtype="float64"),
    replace(DEPTHWISE, channels=4, filters=6),
    replace(DEPTHWISE, channels=4, filters=4, groups=2, channels_last=True),
    replace(DEPTHWISE, channels=4, filters=6, filter=(1, 1)),
]


def test_known_extremes(tmp_path: Path) -> None:
    survives(tmp_path, [square(*arguments, base=layer) for layer in LAYERS for arguments in ARGUMENTS])


STEPS = st.one_of(
    st.integers(1, 4),
    st.integers(1, 10**4),
    st.builds(lambda power, near: max(2**power + near, 1), st.integers(0, 62), st.integers(-9, 9)),
    st.integers(1, MOST),
)


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """(size, taps, stride, padding before, padding after, dilation): for a few outputs, or as it comes."""
    size, taps = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    stride, dilation = draw(STEPS), draw(STEPS)
    if draw(st.integers(0, 9)) == 0:
        return size, taps, stride, draw(st.integers(0, MOST)), draw(st.integers(0, MOST)), dilation
    if draw(st.booleans()):
        dilation = min(dilation, MOST // (8 * taps))
        stride = min(stride, MOST // 64)
    outputs = draw(st.integers(1, 6))
    total = (
        (outputs - 1) * stride + (taps - 1) * dilation + 1 - size + draw(st.integers(0, min(stride - 1, 99)))
    )
    total = max(total, 0)
    if draw(st.booleans()):
        half = min((total + 1) // 2, MOST)
        return size, taps, stride, half, half, dilation
    # So much in front that some tap meets some pixel.
    output, tap, place = (draw(st.integers(0, most - 1)) for most in (outputs, taps, size))
    before = min(max(output * stride + tap * dilation - place, 0), total, MOST)
    return size, taps, stride, before, min(total - before, MOST), dilation


@st.composite
def extremes(draw: st.DrawFn) -> Extreme:
    down, across = draw(axes()), draw(axes())
    if draw(st.integers(0, 3)) == 0:
        down = (1, 1, 1, 0, 0, 1)
    channels, filters, groups = draw(
        st.sampled_from([(1, 1, 1), (3, 3, 3), (3, 6, 3), (20, 20, 20), (4, 6, 1), (4, 4, 2), (1, 3, 1)])
    )
    return Extreme(
        channels,
        filters,
        groups,
        (down[0], across[0]),
        (down[1], across[1]),
        (down[2], across[2]),
        (*down[3:5], *across[3:5]),
        (down[5], across[5]),
        draw(st.sampled_from(["float32", "float32", "bfloat16", "float64"])),
        draw(st.booleans()),
        draw(st.integers(1, 2)),
    )


def test_any_extreme(tmp_path: Path) -> None:
    cases: list[Extreme] = []

    @settings(max_examples=450, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(case=extremes())
    def collect(case: Extreme) -> None:
        cases.append(case)

    collect()
    for first in range(0, len(cases), 150):
        survives(tmp_path, cases[first : first + 150])
