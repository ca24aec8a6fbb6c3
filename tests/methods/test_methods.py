"""Ways to adapt are found by name, check what they are told, and leave nothing behind that matters."""

import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from tiny_libraries import pixels_support
from toy_suite import draw_episode

import smatter
from smatter import methods
from smatter.compose.mixture import Mixture
from smatter.compose.records import Notes, Origin
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Passes
from smatter.settings import MixSettings

WITHOUT_ROUTER = ("average", "best_source", "evidence", "fixed", "greedy_soup", "refined", "solver", "task_arithmetic")
FOLDER = Path(methods.__file__).parent
MIXES = ("weights", "predictions", "both")
TUNED = ("weights", "experts", "mask", "modules")


def test_every_file_of_the_folder_is_a_method_that_explains_itself() -> None:
    assert methods.names() == tuple(sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))
    for name in methods.names():
        found = methods.find(name)
        assert found.name == name and found.summary.endswith(".") and is_dataclass(found.settings)
        told = found.to_dict()
        assert all(setting["help"] for setting in told["settings"])
        choices = {setting["name"]: setting["choices"] for setting in told["settings"] if setting["choices"]}
        own = {"solver": {"start": ("evidence", "uniform")}, "refined": {"tune": TUNED}}.get(name, {})
        assert choices == own | ({"mix": MIXES} if issubclass(found.settings, MixSettings) else {})
        assert len(told["settings"]) == len(fields(found.settings)) - told["takes_router"]


def test_finding_one_needs_no_torch() -> None:
    code = (
        "import sys; from smatter import methods\n"
        "for name in methods.names(): methods.find(name).settings()\n"
        "print({'torch', 'transformers', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_new_file_is_all_that_a_new_method_takes(vit_library: Library, tmp_path: Path, monkeypatch) -> None:
    """The last source takes all: a plug-in of six lines is found by Python, by the command line and by the cache."""
    (tmp_path / "last_source.py").write_text(
        "from smatter.compose.mixture import Mixture\n"
        "from smatter.methods import Fit, NoSettings, method\n\n\n"
        "@method(NoSettings)\n"
        "def last_source(live, task, settings, progress):\n"
        '    """Take the source that was added last."""\n'
        "    return Fit(Mixture.of({live.library.names[-1]: 1.0}))\n"
    )
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    adapted = smatter.adapt(vit_library, pixels_support(), "last_source", cache=tmp_path / "cache")
    assert adapted.mixture.sources == (vit_library.names[-1],) and "last_source" in methods.names()
    again = smatter.adapt(vit_library, pixels_support(), "last_source", cache=tmp_path / "cache")
    assert again.fit == adapted.fit and adapted.to_dict()["method"] == "last_source"


def test_files_that_hold_no_method_harm_no_other(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "_shared.py").touch()
    (tmp_path / "empty.py").touch()
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    assert "_shared" not in methods.names()
    with pytest.raises(InvalidSettings, match="has no method empty"):
        methods.find("empty")


@pytest.mark.parametrize("name", WITHOUT_ROUTER)
def test_results_are_returned_and_what_is_in_the_network_before_does_not_matter(toy, name: str) -> None:
    task = Task.of(live := LiveMixture(toy.library), draw_episode(toy.domains, "red+blue", 3).support)
    told: list[float] = []
    first = methods.find(name)(live, task, progress=lambda share, _="": told.append(share))
    second = methods.find(name)(live, task)  # the network is as the first run left it
    assert first.mixture == second.mixture and first.passes == second.passes and first.evidence == second.evidence
    assert 0 < sum(told) <= 1 + 1e-9 and first.seconds > 0


def test_passes_are_as_few_as_a_method_needs(toy) -> None:
    live = LiveMixture(toy.library)
    task, n_sources = Task.of(live, draw_episode(toy.domains, "green", 1).support), len(toy.library.names)
    passes = {name: methods.find(name)(live, task).passes for name in WITHOUT_ROUTER}
    assert passes["average"] == Passes()
    assert passes["best_source"] == passes["evidence"] == Passes(n_sources)
    assert passes["greedy_soup"] == Passes(2 * n_sources - 1) and passes["task_arithmetic"] == Passes(10)
    assert passes["refined"].backwards <= 2


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("solver", {"n_step": "3"}, "no setting 'n_step', like 'n_steps'"),
        ("best_source", {"n_steps": "3"}, "it has none"),
        ("average", {"mix": "both", "passes": "0"}, "passes is 0.0: give 1 or more"),
        ("evidence", {"passes": "2"}, "say --mix predictions"),
        ("evidence", {"branch": "encoder"}, "no branches: say --mix predictions"),
        ("router", {"mix": "features"}, "unknown mix 'features'"),
        ("solver", {"n_steps": "many"}, "give a whole number"),
        ("solver", {"n_steps": "1.5"}, "give a whole number"),
        ("solver", {"per_module": "maybe"}, "give yes or no"),
        ("solver", {"start": "anywhere"}, "unknown start"),
        ("refined", {"router": "somewhere"}, "no setting 'router'"),
        ("task_arithmetic", {"strengths": "0.1,x"}, "give a number"),
        ("task_arithmetic", {"strengths": "nan"}, "0 or more"),
    ],
)
def test_settings_that_cannot_be_are_one_line(name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as caught:
        methods.find(name).read_settings(given)
    assert "\n" not in str(caught.value)


def test_texts_become_what_each_setting_is() -> None:
    read = methods.find("solver").read_settings(
        {"n_steps": "3", "per_module": "yes", "temperature": "0.5", "n_elements": "none", "start": "uniform"}
    )
    assert read == smatter.SolverSettings("uniform", 0.5, True, n_steps=3)
    assert methods.find("task_arithmetic").read_settings({"strengths": "0.1, 1"}).strengths == (0.1, 1.0)


@pytest.mark.parametrize("name", ["../train", "", "__init__", "Solver", "solver.solver", "os"])
def test_what_is_no_method_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match="unknown method"):
        methods.find(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("solver", {"n_steps": "1000000000"}),
        ("solver", {"n_residual_steps": "10001"}),
        ("refined", {"n_steps": "10001"}),
        ("task_arithmetic", {"strengths": ",".join(["0.5"] * 10_001)}),
    ],
)
def test_a_recipe_that_is_fitted_again_cannot_ask_for_steps_without_end(
    vit_library: Library, name: str, told: dict[str, str]
) -> None:
    bare = vit_library.recipe(Mixture.of({vit_library.names[0]: 1.0}))
    recipe = replace(bare, notes=Notes(origin=Origin(method=name, settings=told)))
    with pytest.raises(InvalidSettings, match="give at most 10000"):
        methods.as_before(recipe, has_router=False)
