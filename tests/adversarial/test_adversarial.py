"""Cheats are rejected for the right reason, honest candidates pass. All of them with `-m slow`; on a GPU also `-m gpu`."""

from __future__ import annotations

import corpus
import pytest

CASES = corpus.cases()


def _param(case: corpus.Case) -> object:
    marks = [pytest.mark.gpu] if case.needs == "gpu" else [pytest.mark.slow]
    return pytest.param(case, id=f"{case.kind}-{case.name}", marks=marks)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """Results of the selected cases by name, judged side by side; the matrix goes to the terminal."""
    chosen = [item.callspec.params["case"] for item in request.session.items if getattr(item, "function", None) is test_case]
    with corpus.benches(tmp_path_factory.mktemp("cache")) as executors:
        found = {result.case.id: result for result in corpus.judged(corpus.runnable(chosen), executors)}
    request.config.get_terminal_writer().write("\n" + corpus.matrix(found.values()) + "\n")
    return found


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("case", [_param(case) for case in CASES])
def test_case(case, results):
    if case.id not in results:
        pytest.skip("needs a GPU")
    result = results[case.id]
    assert result.right, f"{result.outcome} instead of {' | '.join(case.expect)}: {result.message}"


def test_every_cheat_names_a_reason_and_resembles_an_honest_candidate():
    honest = {case.name for case in CASES if case.honest}
    for case in CASES:
        if not case.honest:
            assert case.expect and all(part.split()[0] in corpus.STATUSES for part in case.expect), case.id
            assert case.twin in honest, case.id


def test_twins_are_there():
    assert {case.twin for case in CASES if case.twin} <= {case.name for case in CASES}
