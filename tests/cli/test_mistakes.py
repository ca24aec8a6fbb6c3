"""What newcomers get wrong: one line, a remedy that the command has, and no waiting for torch."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from small_suites import write_tree
from tiny_libraries import pixels_support

import smatter
from smatter.cli.main import main
from smatter.library.library import Library
from smatter.tasks.export import write_task
from smatter.tasks.open import SHIPPED
from smatter.train.curriculum import ENOUGH_CLASSES, ENOUGH_EXAMPLES, make_curriculum


@pytest.fixture(scope="module")
def place(tmp_path_factory, vit_library: Library) -> Path:
    """A library, a task with support and query, a suite that is too small to train on, and another base's router."""
    folder = tmp_path_factory.mktemp("my place")
    (folder / "library").symlink_to(vit_library.folder)
    (folder / "router").symlink_to(SHIPPED / "signs-router")
    tree = write_tree(folder / "tree", {"photo": "abc"}, n_each=4)
    settings = smatter.SamplerSettings("all", n_way=(3, 3), n_shot=(2, 2))
    write_task(folder / "thai", smatter.Sampler(smatter.open_suite(tree), settings).episode(0))
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("mine")
    return folder


def refused(capsys, *words: object) -> str:
    assert main([*map(str, words)]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and not told.out
    return told.err


def test_a_task_instead_of_its_support_is_told_what_to_give(place: Path, capsys) -> None:
    told = refused(capsys, "adapt", place / "library", place / "thai")
    assert "delete" not in told and "remove" not in told
    given = shlex.split(told.rpartition("give ")[2])
    assert given == [str(place / "thai" / "support")]


def test_exchanged_arguments_are_told_in_their_order(place: Path, capsys) -> None:
    for words in (["adapt"], ["solve"], ["train", "-o", place / "new"]):
        told = refused(capsys, *words, place / "tree", place / "library")
        assert shlex.split(told.rpartition("exchange them, ")[2]) == [str(place / "library"), str(place / "tree")]


def test_a_folder_that_is_no_library_is_told_how_to_become_one(place: Path, capsys, tmp_path: Path) -> None:
    home = tmp_path / "my lib"
    assert f"`smatter library init '{home}' BASE`" in refused(capsys, "adapt", home, place / "thai" / "support")
    (tmp_path / "some net").mkdir()
    (tmp_path / "some net" / "config.json").write_text("{}")
    told = refused(capsys, "adapt", tmp_path / "some net", place / "thai" / "support")
    assert f"`smatter library init LIB '{tmp_path / 'some net'}'`" in told


def test_a_folder_too_small_to_train_on_is_told_what_it_lacks(place: Path, capsys, tmp_path: Path) -> None:
    told = refused(capsys, "train", place / "library", place / "tree", "-o", tmp_path / "router")
    assert f"at least {ENOUGH_CLASSES} classes of {ENOUGH_EXAMPLES} examples" in told
    assert "ways" not in told and "split 'all'" not in told
    letters = "abcdefghijklmnopqrstuvwxyz"[:ENOUGH_CLASSES]
    enough = smatter.open_suite(write_tree(tmp_path / "tree", {"photo": letters}, n_each=ENOUGH_EXAMPLES))
    assert make_curriculum(enough).training


def test_hints_are_quoted(place: Path, capsys, tmp_path: Path) -> None:
    recipe = tmp_path / "my task.safetensors"
    assert main(["adapt", str(place / "library"), str(place / "thai" / "support"), "-o", str(recipe)]) == 0
    hints = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("  smatter")]
    assert ["smatter", "predict", str(recipe), "INPUTS", "--library", str(place / "library")] in hints
    predict = next(hint for hint in hints if hint[1] == "predict")
    inputs = str(place / "thai" / "query")
    assert main([inputs if word == "INPUTS" else word for word in predict[1:]]) == 0


def test_a_typing_error_does_not_wait_for_torch(place: Path) -> None:
    """A router of another base is among them, for its folder says what it is for."""
    library, support = "library", "thai/support"
    wrong = {
        "adapt nowhere thai/support": "does not exist",
        "adapt library nowhere": "does not exist",
        "adapt library thai": "is a task with its queries",
        "adapt tree library": "exchange them",
        f"adapt {library} {support} --router nowhere": "is no folder",
        f"adapt {library} {support} --router tree": "has no router.json",
        f"adapt {library} {support} --router router": "trained for another base",
        f"adapt {library} {support} --method solver --router router": "does not ask a router",
        f"adapt {library} {support} --queries nowhere": "does not exist",
        f"adapt {library} {support} --cache full/mine.txt": "is a file",
        f"adapt {library} {support} -o no/where": "create it first",
        f"adapt {library} {support} --refit nowhere": "does not exist",
        "solve library nowhere": "does not exist",
        "train library nowhere -o new": "does not exist",
        "train library tree -o new": "too small to train on",
        "train library tree -o full --replace": "not empty",
        "train tree library -o new": "exchange them",
        "predict nowhere thai/query --library library": "does not exist",
        "compose nowhere --weights base=1": "does not exist",
        "compose library --recipe nowhere": "does not exist",
        "profile nowhere": "does not exist",
        "profile -o no/where": "create it first",
        "profile library --from nowhere": "there is no profile",
        "profile library --table nowhere": "there is no table",
        "library init new nowhere": "is not a folder",
        "demo -o full": "give another place",
        "demo -o no/where": "create it first",
    }
    program = (
        "import sys; from smatter.cli.main import main\n"
        f"for words in {list(wrong)!r}: assert main(words.split()) == 2; assert 'torch' not in sys.modules, words"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(wrong)
    for (words, message), line in zip(wrong.items(), lines, strict=True):
        assert message in line, (words, line)


def test_records_are_told_in_a_few_lines(vit_library: Library) -> None:
    adapted = smatter.adapt(vit_library, pixels_support(), "solver", smatter.SolverSettings(n_steps=1, n_elements=20))
    for record in (adapted, adapted.fit, adapted.recipe, vit_library):
        told = repr(record)
        assert told.startswith(type(record).__name__) and 1 <= told.count("\n") + 1 <= 3 and len(told) < 500
        assert "tensor(" not in told and "array(" not in told
        assert all(name in told for name in adapted.mixture.active_sources)
    assert f"{adapted.loss:.3f}" in repr(adapted) and "by solver" in repr(adapted.recipe)
