"""Profiles of kernels: what is read from disassemblies, and the committed ones of the paper's forms."""

from __future__ import annotations

from benchmarks import profiles
from benchmarks.papers.kernel_profiles import profile
from benchmarks.profiles import AMD, NVIDIA
from convx import _core

_SASS = """
.text._Zfirst:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.CONSTANT R2, desc[UR4][R2.64] ;
        /*0020*/              @!P1 STG.E desc[UR4][R2.64], R3 ;
        /*0030*/                   FFMA R4, R2, R3, R4 ;
        /*0040*/              @UP0 LDS.128 R8, [R9] ;
.text._Zsecond:
        /*0000*/                   EXIT ;
"""
_GCN = """
0000000000003100 <_Zfirst>:
\ts_load_dwordx4 s[0:3], s[4:5], 0x20                     // 000000003100: C0120302
\tglobal_load_dword v1, v[2:3], off                       // 000000003108: BE830006
\tds_read_b32 v1, v2
\tv_fmac_f32_e32 v4, v1, v2
\tv_add_f32_e32 v4, v1, v2
\ts_endpgm
"""


def test_instructions_of_a_disassembly() -> None:
    first = {"other": 1, "memory": 2, "multiply_add": 1, "shared_memory": 1}
    assert profiles.instructions(_SASS, NVIDIA) == {"_Zfirst": first, "_Zsecond": {"other": 1}}
    assert profiles.instructions(_GCN, AMD) == {
        "_Zfirst": dict.fromkeys(
            ("scalar_memory", "memory", "shared_memory", "multiply_add", "other_vector", "other"), 1
        )
    }


def test_committed_profiles_are_of_plans_that_there_are() -> None:
    """And of the paper's shape: 32 blocks of 64 threads."""
    problem = _core.Problem(
        operation="forward",
        dtype="float32",
        layout="nchw",
        batch=1,
        in_channels=256,
        in_height=14,
        in_width=14,
        out_channels=256,
        filter_height=3,
        filter_width=3,
        padding=(1, 1, 1, 1),
    )
    plans = _core.candidates("hntmp", problem, _core.Device.known_device("mi250"))
    there = {plan.name.split(" lanes")[0].split(" rows")[0] for plan in plans}
    found = {each["plan"]: each for each in profiles.load()}
    assert set(found) == set(profiles.FORMS) <= there
    assert (found["hntmp/published"]["blocks"], found["hntmp/published"]["threads"]) == (32, 64)
    # Algorithm 1 without the cache reads each filter anew, algorithm 2 keeps it for all pixels of a thread.
    counts = {plan: each["memory_instructions"] for plan, each in found.items()}
    assert counts["hntmp/published"] < counts["hntmp/direct"] / 5


def test_the_page_has_a_line_for_each_form() -> None:
    targets = {
        AMD: {"shared": 216, "vgpr": 60, "sgpr": 46, "memory": 66, "multiply_add": 756, "other_vector": 44},
        NVIDIA: {"shared": 216, "registers": 80, "memory": 184, "shared_memory": 21, "multiply_add": 616},
    }
    one = {"plan": "hntmp/published", "blocks": 32, "threads": 64, "memory_instructions": 2584.5}
    *_, text = profile([one | {"kilobytes": [20672, 1568], "targets": targets}])
    assert (
        "| `hntmp/published` | 32x64 | 2584 | 20672+1568 | 216 | 60+46 | 66, 0 | 0 | 756 | 800 | 216 | 80 |"
        in text
    )
    assert profile([]) == []
