"""Programs of torch.export that bring code reach no job that loads them untrusted."""

from pathlib import Path

import pytest

from control.jobs.spec import JobSpec
from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.specs.profile import ProfileSpec
from jobs.worker.folders import CannotRead
from jobs.worker.programs import check_programs

CONVERT = ConvertSpec(model="digits", version=3)
PROFILE = ProfileSpec(model="digits", version=3)


@pytest.mark.parametrize(
    ("spec", "advice"), [(CONVERT, "`trusted: true`"), (PROFILE, "profile the result")]
)
def test_what_is_no_program_is_refused_by_name(spec: JobSpec, advice: str, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "model.pt2").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(CannotRead, match=rf"'digits' version 3: parts/model.pt2 .*{advice}"):
        check_programs(spec, tmp_path)


@pytest.mark.parametrize(
    "spec", [ConvertSpec(model="digits", trusted=True), OptimiseSpec(model="digits")]
)
def test_jobs_that_are_trusted_or_load_no_program_may_have_any(
    spec: JobSpec, tmp_path: Path
) -> None:
    (tmp_path / "model.pt2").write_bytes(b"anything")
    check_programs(spec, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_program_passes_as_torch_writes_it_and_not_with_a_pickle_that_runs_code(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    from support.hostile_programs import save_hostile, save_program

    save_program(tmp_path / "model.pt2")
    check_programs(CONVERT, tmp_path)
    marker = tmp_path / "marker"
    save_hostile("samples", tmp_path / "model.pt2", tmp_path / "other.pt2", marker)
    with pytest.raises(CannotRead, match=r"other\.pt2"):
        check_programs(CONVERT, tmp_path)
    assert not marker.exists()
