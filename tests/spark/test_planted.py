"""The pipeline on Spark finds two planted histories of every law."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.stories import DOCTORED, SOUND, Doctored, write_trace
from tests.laws.test_operations import write_stale_read
from unisono.laws import LAWS, SENTENCES

pytestmark = pytest.mark.xdist_group("spark")


def planted() -> list[Doctored]:
    """The first two of each law."""
    return [each for law in LAWS for each in [d for d in DOCTORED if d.law == law][:2]]


@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=pytest.mark.catches(law), id=law) for law in LAWS]
)
def test_two_planted_histories_of_each_law_are_caught_on_spark(
    broken: dict[str, set[str]], law: str
) -> None:
    meant = {each.history.run for each in planted() if each.law == law}
    assert len(meant) == 2
    assert meant <= broken[law]


def test_a_stale_read_is_caught_on_spark(broken: dict[str, set[str]]) -> None:
    assert broken["linearizable"] == {planted()[0].history.run}
    assert not broken["held_by_one"]


@pytest.fixture(scope="module")
def broken(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """By law, the runs in which the pipeline finds it broken."""
    from unisono.spark.pipeline import run_pipeline

    top = tmp_path_factory.mktemp("planted")
    sound = next(each for each in SOUND if each.name == "two talk")
    for history in (sound.history, *(each.history for each in planted())):
        write_trace(history, top / "trace")
    write_stale_read(top / "trace", planted()[0].history.run)
    result = run_pipeline(spark, top / "trace", top / "out", {"story": list(LAWS)}, lambda _: None)
    verdicts = result.verdicts
    assert verdicts[sound.history.run].kept
    return {
        law: {run for run, verdict in verdicts.items() if verdict.laws.get(law) == "broken"}
        for law in SENTENCES
    }
