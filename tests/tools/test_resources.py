"""What the compile checks read out of the compilers' reports; a spill fails them."""

from __future__ import annotations

import shutil

import pytest

from build_tools.resources import parse_amd, parse_nvcc, serialized_products, summary, table

pytestmark = pytest.mark.skipif(not shutil.which("c++filt"), reason="names are made readable by c++filt")

KERNEL = "_ZN5convx9depthwise6kernelILi32EEEvi"


def nvcc_report(target: str, spilled: int) -> str:
    return f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{KERNEL}' for '{target}'
ptxas info    : Function properties for {KERNEL}
    {spilled} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 56 registers, used 1 barriers, 2048 bytes smem
"""


def amd_report(spilled: int) -> str:
    values = {"Function Name": KERNEL, "SGPRs": 30, "VGPRs": 97, "ScratchSize [bytes/lane]": 16}
    values |= {"Occupancy [waves/SIMD]": 8, "SGPRs Spill": spilled, "VGPRs Spill": 0}
    values |= {"LDS Size [bytes/block]": 512}
    return "\n".join(f"kernel.cuh:7:1: remark: {name}: {value}" for name, value in values.items())


def test_one_report_holds_several_cuda_targets() -> None:
    uses = parse_nvcc(nvcc_report("sm_80", 0) + nvcc_report("sm_90", 0))
    assert [use.target for use in uses] == ["sm_80", "sm_90"]
    assert all(use.values["registers"] == 56 and use.values["shared"] == 2048 for use in uses)
    text, good = summary(uses)
    assert good and "sm_90: 1 kernels, at most 56 registers" in text
    assert table(uses, {"registers": "registers"}).splitlines()[-1].split() == ["56", "56", "kernel<32>"]


def test_a_spill_for_one_cuda_target_fails() -> None:
    text, good = summary(parse_nvcc(nvcc_report("sm_80", 0) + nvcc_report("sm_90", 8)))
    assert not good
    assert "SPILLS kernel<32>" in text and "sm_80: 1 kernels" in text


def test_products_that_wait_for_one_another_are_found() -> None:
    line = (
        "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized "
        f"due to program dependence on compiler-inserted WG.AR in divergent path in the function '{KERNEL}'"
    )
    report = nvcc_report("sm_90a", 0)
    assert serialized_products(report) == []
    assert serialized_products(line + "\n" + report) == [line]


@pytest.mark.parametrize("spilled", (0, 3))
def test_amd_report(spilled: int) -> None:
    (use,) = parse_amd(amd_report(spilled), "gfx90a")
    assert use.values["vgpr"] == 97 and use.values["occupancy"] == 8 and use.values["shared"] == 512
    text, good = summary([use])
    assert good == (spilled == 0)
    assert ("SPILLS kernel<32>" if spilled else "stack frame of 16 B: kernel<32>") in text


def test_a_kernel_for_the_other_warp_width_is_left_out() -> None:
    (use,) = parse_amd(amd_report(0).replace("VGPRs: 97", "VGPRs: 0").replace(": 512", ": 0"), "gfx90a")
    assert use.does_nothing
