"""What one could do without adapting, beside a task's model: the same numbers as adapting that way would give."""

import json
import math
from pathlib import Path

import pytest
import torch
from tiny_libraries import pixels_support, texts_support

import smatter
from smatter import methods
from smatter.adapted import Adapted
from smatter.cli.main import main
from smatter.errors import InvalidWeights, UnknownSource
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.fixed import FixedSettings
from smatter.settings import HeadName
from smatter.steps.judge import judged_model
from smatter.tasks.support import Support


def fixed(library: Library, support: Support, weights: str, head: HeadName = "prototype") -> Adapted:
    return smatter.adapt(library, support, "fixed", FixedSettings(weights), head=head)


@pytest.mark.parametrize("head", ["prototype", "ridge"])
@pytest.mark.parametrize("method", ["evidence", "solver", "average"])
def test_they_are_what_adapting_that_way_gives(vit_library: Library, method: str, head: HeadName) -> None:
    support = pixels_support()
    adapted = smatter.adapt(vit_library, support, method, head=head)
    before = adapted.predict(support.inputs).probabilities
    found = {each.name: each for each in adapted.alternatives}
    assert set(found) == {"base", "plain average"} | ({"best source"} if adapted.fit.evidence else set())
    for each in found.values():
        same = fixed(vit_library, support, each.source or "uniform", head)
        assert (each.loss, each.held_out_accuracy) == pytest.approx((same.loss, same.held_out_accuracy))
    assert torch.equal(adapted.predict(support.inputs).probabilities, before)


def test_with_evidence_they_cost_a_pass(vit_library: Library) -> None:
    live = LiveMixture(vit_library)
    task = Task.of(live, pixels_support())
    adapted = judged_model(live, task, methods.find("evidence")(live, task))
    done = live.n_forwards
    adapted.to_dict()
    assert live.n_forwards == done + 1


def test_single_examples_have_losses_and_no_accuracy(vit_library: Library) -> None:
    adapted = smatter.adapt(vit_library, pixels_support(n_shot=1))
    assert all(math.isnan(each.held_out_accuracy) and math.isfinite(each.loss) for each in adapted.alternatives)
    assert all(each["held_out_accuracy"] is None for each in json.loads(json.dumps(adapted.to_dict()))["alternatives"])


def test_a_kept_result_knows_them_too(vit_library: Library, tmp_path: Path) -> None:
    first, again = (smatter.adapt(vit_library, pixels_support(), cache=tmp_path).alternatives for _ in range(2))
    assert first == again


def test_given_weights_are_taken(vit_library: Library) -> None:
    names, support = vit_library.names, pixels_support()
    assert fixed(vit_library, support, names[1]).shares == {names[1]: 1.0}
    told = fixed(vit_library, support, f"{names[0]}=.7,{names[1]}=.3")
    assert told.shares == {names[0]: 0.7, names[1]: 0.3} and told.origin.settings["weights"]
    assert fixed(vit_library, support, "uniform").loss == smatter.adapt(vit_library, support, "average").loss
    assert smatter.refit(vit_library, support, told.recipe).recipe.mixture == told.recipe.mixture


@pytest.mark.parametrize(
    ("weights", "error"), [("a=1,b=1", InvalidWeights), ("a=x", InvalidWeights), ("nobody", UnknownSource)]
)
def test_weights_that_are_none_are_refused(vit_library: Library, weights: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        fixed(vit_library, pixels_support(), weights)


def test_the_command_tells_what_it_read_and_what_doing_without_gives(topics: Library, tmp_path: Path, capsys) -> None:
    support = texts_support("food")
    table = tmp_path / "food.csv"
    rows = zip(support.inputs, support.labels, strict=True)
    table.write_text("text,label\n" + "".join(f"{text},{support.class_names[label]}\n" for text, label in rows))
    words = ["adapt", str(topics.folder), str(table)]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"read {len(support)} examples of {len(support.class_names)} classes")
    assert support.class_names[0] in lines[0]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["examples"].values()) == len(support)
    (line,) = [line for line in lines if line.startswith("without adapting")]
    for each in told["alternatives"]:
        assert f"the {each['name']}" in line and f"{each['held_out_accuracy']:.0%}" in line
    assert main([*words, "--weights", "uniform", "--json"]) == 0
    shares = json.loads(capsys.readouterr().out)["weights"]
    assert set(shares.values()) == {1 / len(topics.names)}
    assert main([*words, "--weights", "uniform", "--method", "evidence"]) == 2
    assert main([*words, "--no-experts"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
