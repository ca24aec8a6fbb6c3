"""Where networks part, by name, and what a set of them costs in passes."""

import pytest

from smatter.backbones.branch import passes_of, tail_modules
from smatter.errors import UnknownModule

MODULES = (
    "embeddings",
    *(f"encoder.stages.{stage}.layers.{layer}" for stage in range(12) for layer in range(2)),
    "final_norm",
)


@pytest.mark.parametrize(
    ("branch", "first"),
    [
        ("encoder.stages.2.layers.1", "encoder.stages.2.layers.1"),
        ("encoder.stages.2", "encoder.stages.2.layers.0"),
        ("encoder.stages.1", "encoder.stages.1.layers.0"),  # and not those of 10 and 11
        ("encoder", "encoder.stages.0.layers.0"),
        ("final_norm", "final_norm"),
    ],
)
def test_a_tail_is_all_from_the_branch_on(branch: str, first: str) -> None:
    tail = tail_modules(MODULES, branch)
    assert tail[0] == first and tail == MODULES[-len(tail) :]


def test_a_branch_at_the_first_module_leaves_no_trunk() -> None:
    assert tail_modules(MODULES, "embeddings") == MODULES
    assert passes_of(dict.fromkeys(MODULES, 1 / len(MODULES)), [MODULES] * 4) == pytest.approx(4)


@pytest.mark.parametrize("branch", ["encoder.stages.12", "encoder.stage", "", "final_norm.", "x" * 10_000])
def test_an_unknown_branch_is_refused_with_names_that_would_do(branch: str) -> None:
    with pytest.raises(UnknownModule, match=r"branch at one of embeddings, encoder\.stages") as refusal:
        tail_modules(MODULES, branch)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 600


def test_passes_count_the_trunk_once_and_each_tail() -> None:
    shares = {"a": 0.5, "b": 0.3, "c": 0.2}
    assert passes_of(shares, [["c"]]) == 1
    assert passes_of(shares, [["c"]] * 4) == pytest.approx(0.8 + 4 * 0.2)
    assert passes_of(shares, [["c"], ["b", "c"]]) == pytest.approx(0.5 + 2 * 0.5)  # one trunk serves both
    assert passes_of(shares, [[], []]) == 1 and passes_of(shares, []) == 0
    with pytest.raises(UnknownModule, match="'d'"):
        passes_of(shares, [["d"]])
