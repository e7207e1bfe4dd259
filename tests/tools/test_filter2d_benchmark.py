"""The benchmark suite of filters: sound records, and peers that agree with the exact result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import filter2d, nsight, transactions
from benchmarks.__main__ import main
from benchmarks.results import load
from convx import _core, _planning

pytest.importorskip("tqdm")


def test_a_run_writes_sound_records(tmp_path: Path) -> None:
    arguments = ["--suite", "filter2d", "--case", "256-3x3,256-5x5", "--device", "cpu", "--quick"]
    assert main([*arguments, "--peers", "torch", "--all-candidates", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/filter2d.json")
    records = list(load(path).records.values())
    assert len(records) == 2 * len(filter2d.DTYPES) * (1 + len(filter2d.FORMS))
    for record in records:
        assert record["convx_us"] > 0 and record["floor_us"] > 0 and record["error_ratio"] <= 2
        assert set(record["peers_us"]) == {"torch"}
        lower, upper = record["spread_us"]
        assert lower <= record["convx_us"] <= upper
        assert ("peers_spread_us" in record) == (record["chosen_by"] == "auto")


def test_every_number_of_rows_is_timed() -> None:
    """On a GPU, of the paper's forms: their tilings, by names that select them."""
    case, device = filter2d.Case(512, 5), _planning.device("h200")
    problem = _planning.filter_problem(torch.float32, (1, 512, 512), (1, 5, 5), "zero")
    forms = {form.name: form for form in filter2d.forms(case, "float32", "h200")}
    assert set(forms["both"].rows.values()) == set(forms["row_reuse"].rows.values()) == {2, 4, 8}
    assert set(forms["direct"].rows.values()) == set(forms["column_reuse"].rows.values()) == {1}
    assert len(forms["strip"].rows) == 1
    for form in forms.values():
        for name, rows in form.rows.items():
            plan = _core.select(problem, device, name).plan
            assert (plan.candidate, plan.tiling["rows"], plan.name) == (form.name, rows, name)
    both = {name: 10.0 / rows + index for index, (name, rows) in enumerate(forms["both"].rows.items())}
    assert filter2d._by_rows(forms["both"], both) == {
        str(rows): min(time for name, time in both.items() if forms["both"].rows[name] == rows)
        for rows in (2, 4, 8)
    }
    assert forms["both"].fastest({}) == ""
    # Eight rows of 9x9 have more registers than AMD's GPUs, and other types have four rows alone.
    for extent, dtype, expected in ((9, "float32", {2, 4}), (5, "uint8", {4})):
        found = filter2d.forms(filter2d.Case(512, extent), dtype, "mi300")
        (rows_of_both,) = (form.rows.values() for form in found if form.name == "both")
        assert set(rows_of_both) == expected


@pytest.mark.parametrize("dtype", list(filter2d.DTYPES))
def test_opencv_computes_the_same(dtype: str) -> None:
    pytest.importorskip("cv2")
    image, weights = filter2d._image(256, dtype, torch.device("cpu")), torch.randn(5, 5) / 5
    found = torch.from_numpy(filter2d._opencv([image], weights)(0)).double()
    ours = filter2d._torch_filter(image, weights).double()
    assert (found - ours).abs().max() <= (1 if dtype == "uint8" else 1e-5)


def test_unknown_cases_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"--case 3x3: no case has such a name; names are 256-3x3"):
        filter2d.cases("3x3")
    with pytest.raises(SystemExit):
        main(["--suite", "filter2d", "--device", "cpu", "--dtype", "bfloat16"])
    assert "the types of this suite are float32, uint8" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--suite", "depthwise", "--case", "D24", "--device", "cpu", "--dtype", "uint8"])
    assert "belong to --suite filter2d" in capsys.readouterr().err


def test_counters_of_a_calls_kernels_are_added_up() -> None:
    """ncu's lines: units first, a separator before each contender, thousands in groups."""
    names = list(transactions.METRICS.values())
    rows = [["ID", "Kernel Name", *names], ["", "", *("sector" for _ in names)]]
    for kernel, value in (
        ("spin_kernel", "0"),
        ("unfold", "1,000"),
        ("gemm", "23"),
        ("spin_kernel", "1"),
        ("filter", "7"),
    ):
        rows.append([str(len(rows)), kernel, *(value for _ in names)])
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    calls = nsight.between_separators(lines, names)
    assert [[kernel for kernel, _ in call] for call in calls] == [["unfold", "gemm"], ["filter"]]
    totals = [transactions.added_up(call) for call in calls]
    assert totals == [dict.fromkeys(transactions.METRICS, total) for total in (1023, 7)]


def test_transactions_replace_those_of_the_same_machine_alone(tmp_path: Path) -> None:
    path = tmp_path / "transactions.json"
    assert transactions.load(path) == []
    case = filter2d.Case(256, 3)
    record = transactions._record(transactions.EXECUTOR, case, "filter2d/both rows=4", {"loads": 1})
    other = record | {"by": "NVIDIA H200", "loads": 5}
    path.write_text(json.dumps({"environments": {"NVIDIA H200": {}}, "records": [record, other]}))
    transactions.write(path, transactions.EXECUTOR, [record | {"loads": 2}])
    assert transactions.load(path) == [other, record | {"loads": 2}]


def test_committed_transactions_are_of_plans_that_there_are() -> None:
    """And each form of fewer reuses asks for more."""
    records = [each for each in transactions.load() if each["by"] == transactions.EXECUTOR]
    for case in transactions.cases(transactions.COUNTED_SIZES):
        loads = {
            each["contender"]: each["loads"]
            for each in records
            if (each["size"], each["filter"]) == (case.size, case.filter)
        }
        assert sorted(loads) == transactions.plans(case)
        by_form = {f"{name.split()[0]} {name.split('rows=')[1].split()[0]}": n for name, n in loads.items()}
        assert by_form["filter2d/both 8"] < by_form["filter2d/both 4"] < by_form["filter2d/both 2"]
        assert by_form["filter2d/both 2"] < by_form["filter2d/column_reuse 1"] < by_form["filter2d/direct 1"]
        assert by_form["filter2d/both 4"] < by_form["filter2d/row_reuse 4"] < by_form["filter2d/direct 1"]
