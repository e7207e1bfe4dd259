"""The table of what is fused of which network is of the networks there are, and of what convx does."""

from __future__ import annotations

import pytest

from benchmarks.families import TABLE, look, main
from benchmarks.family_networks import FamilyNetwork, networks


def test_the_table_has_all_networks() -> None:
    cells = [line.split(" | ")[:2] for line in TABLE.read_text().splitlines() if line.startswith("| t")]
    assert cells == [[f"| {each.library}", each.name] for each in networks()]


@pytest.mark.parametrize(
    "network",
    [
        FamilyNetwork("torchvision", "mobilenet_v2"),
        FamilyNetwork("timm", "lambda_resnet26t"),
        FamilyNetwork("transformers", "MobileNetV1ForImageClassification"),
        FamilyNetwork("transformers", "SegformerForSemanticSegmentation"),
    ],
    ids=lambda each: each.name,
)
def test_rows_are_what_is_fused(network: FamilyNetwork) -> None:
    try:
        row = look(network)
    except ImportError as error:
        pytest.skip(str(error))
    assert row.known in TABLE.read_text() and row.error < 2


def test_one_network_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    assert main(["--network", "convnext_atto"]) == 0
    assert capsys.readouterr().out.startswith("| timm | convnext_atto | 40 | gelu (12)")
