"""From somebody's data to tasks: nothing on both sides, the same tasks every time, mistakes told with a remedy."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from small_suites import picture, picture_suite, write_tree

from smatter.errors import InvalidSuite, InvalidSupport, NotFound, SmatterError, SmatterWarning
from smatter.evaluate.trials import DrawSettings, Trial, input_digest, open_trials
from smatter.tasks.export import write_task
from smatter.tasks.lists import TaskList, write_list
from smatter.tasks.packed import read_packed, write_packed
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.classes import MissingClasses
from smatter.tasks.support import Support


def sides(trial: Trial) -> tuple[set[str], set[str]]:
    return set(map(input_digest, trial.support.inputs)), set(map(input_digest, trial.queries))


def test_one_labelled_folder_is_split_by_itself(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "mine", {".": "abc"}, n_each=6)
    trials = open_trials(root, draw=DrawSettings(n_tasks=5, n_shot=2))
    assert len(trials) == 5 and "5 random splits of mine, 2 shots, seed 0" in trials.told
    for trial in trials:
        assert trial.support.class_sizes == (2, 2, 2) and len(trial.queries) == 12
        support, queries = sides(trial)
        assert len(support | queries) == 18 and not support & queries
        assert [trial.support.class_names[label] for label in trial.truth] == [
            path.parent.name for path in trial.queries
        ]
        assert len(set(trial.places)) == 12
    assert len({trial.digest for trial in trials}) == 5
    again = open_trials(root, draw=DrawSettings(n_tasks=5, n_shot=2))
    assert [trial.digest for trial in trials] == [trial.digest for trial in pickle.loads(pickle.dumps(again))]
    other = open_trials(root, draw=DrawSettings(n_tasks=1, n_shot=2, n_query=1, seed=1))[0]
    assert len(other.queries) == 3 and other.digest != trials[0].digest


def test_a_repeated_picture_is_never_on_both_sides(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "mine", {".": "ab"}, n_each=3)
    (root / "a" / "copy.png").write_bytes((root / "a" / "0.png").read_bytes())
    with pytest.warns(SmatterWarning, match="1 examples .* repeat others"):
        trials = open_trials(root, draw=DrawSettings(n_tasks=20, n_shot=2))
    for trial in trials:
        support, queries = sides(trial)
        assert not support & queries and len(trial.queries) == 2


def test_support_and_queries_apart(tmp_path: Path) -> None:
    examples, queries = tmp_path / "shots.csv", tmp_path / "asked.jsonl"
    examples.write_text("text,label\none,a\ntwo,b\nthree,b\n")
    queries.write_text(
        '{"text": "four", "label": "b"}\n{"text": "two", "label": "b"}\n{"text": "five", "label": "c"}\n'
        '{"text": "six", "label": "a"}\n'
    )
    with pytest.warns(SmatterWarning) as told:
        trials = open_trials(examples, queries)
    reasons = sorted(str(each.message) for each in told)
    assert len(reasons) == 2 and "among the examples" in reasons[0] and "without examples" in reasons[1]
    assert len(trials) == 1 and list(trials[0].queries) == ["six", "four"] and trials[0].truth == (0, 1)


def test_task_folders_as_the_suite_command_writes_them(tmp_path: Path) -> None:
    sampler = Sampler(picture_suite(), SamplerSettings("all", n_way=(2, 2), n_shot=(2, 2), n_query=3))
    (tmp_path / "tasks").mkdir()
    for index in range(2):
        write_task(tmp_path / "tasks" / f"t{index}", sampler.episode(index))
    both, one = open_trials(tmp_path / "tasks"), open_trials(tmp_path / "tasks" / "t1")
    assert [trial.name for trial in both] == ["t0", "t1"] and len(one) == 1
    assert one[0].digest == both[1].digest and len(one[0].queries) == 6
    assert len({trial.digest for trial in pickle.loads(pickle.dumps(both))}) == 2


def test_a_suite_gives_the_tasks_that_its_sampler_draws(tmp_path: Path) -> None:
    write_packed(tmp_path / "suite", picture_suite(n_classes=20))
    suite = read_packed(tmp_path / "suite")
    draw = DrawSettings(n_tasks=3, n_shot=2, n_query=3, n_way=4, split="all", role="ood", seed=5)
    trials = open_trials(tmp_path / "suite", draw=draw)
    settings = SamplerSettings("all", "ood", (4, 4), (2, 2), 3)
    wanted = Sampler(suite, settings, 5).episode(1)
    assert trials[1].domain == "grey" and trials[1].truth == tuple(wanted.query.truth.tolist())
    assert trials[1].queries[4].tobytes() == wanted.query.inputs[4].tobytes()
    write_list(tmp_path / "list.json", TaskList("mine", Sampler(suite, settings, 5), 2))
    frozen = open_trials(tmp_path / "suite", frozen=tmp_path / "list.json")
    assert [trial.digest for trial in frozen] == [trial.digest for trial in trials][:2]
    assert "the list mine" in frozen.told


def test_trees_and_tables_of_several_domains_are_suites(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", {"photo": "abcd", "sketch": "abcd"}, n_each=4)
    draw = DrawSettings(n_tasks=12, n_shot=1, n_query=2, n_way=3, split="all")
    assert {trial.domain for trial in open_trials(root, draw=draw)} == {"photo", "sketch"}
    rows = [f"{d}{c}{n},{c},{d}" for d in ("x", "y") for c in "abc" for n in range(4)]
    (tmp_path / "table.csv").write_text("\n".join(["text,label,domain", *rows]))
    assert {trial.domain for trial in open_trials(tmp_path / "table.csv", draw=draw)} == {"x", "y"}


def test_queries_that_nobody_could_name_are_left_out(tmp_path: Path) -> None:
    write_packed(tmp_path / "suite", picture_suite(n_classes=20))
    settings = SamplerSettings("all", n_way=(4, 4), n_shot=(2, 2), n_query=3)
    sampler = Sampler(read_packed(tmp_path / "suite"), settings)
    write_list(tmp_path / "list.json", TaskList("mine", sampler, 1, (MissingClasses(1),)))
    (trial,) = open_trials(tmp_path / "suite", frozen=tmp_path / "list.json")
    assert len(trial.support.class_names) == 3 and trial.truth == (0, 0, 0, 1, 1, 1, 2, 2, 2)


def test_the_digest_tells_contents_and_not_the_order_of_examples() -> None:
    support = Support(("x", "y", "z"), (0, 1, 1), ("a", "b"), "texts")
    trial = Trial("t", "", support, ("q", "r"), (0, 1))
    shuffled = Support(("z", "x", "y"), (1, 0, 1), ("a", "b"), "texts")
    assert replace(trial, support=shuffled).digest == trial.digest
    exchanged = Support(("x", "y", "z"), (1, 0, 1), ("a", "b"), "texts")
    others = [replace(trial, support=exchanged), replace(trial, truth=(1, 0)), replace(trial, queries=("q", "s"))]
    assert len({trial.digest, *(other.digest for other in others)}) == 4
    assert input_digest(picture(1)) != input_digest(picture(2))


@pytest.mark.parametrize(
    "words, error, remedy",
    [
        ("missing", NotFound, "does not exist; give a folder"),
        ("few", InvalidSupport, "give --shot 2"),
        ("single", InvalidSupport, "has 1 examples.*: add examples"),
        ("flat", SmatterError, "arrange them as"),
    ],
)
def test_what_cannot_be_split_is_told_with_a_remedy(tmp_path: Path, words: str, error: type, remedy: str) -> None:
    if words == "few":
        write_tree(tmp_path / words, {".": "ab"}, n_each=3)
    elif words == "single":
        write_tree(tmp_path / words, {".": "ab"}, n_each=1)
    elif words == "flat":
        (tmp_path / words).mkdir()
        picture(0).save(tmp_path / words / "0.png")
    with pytest.raises(error, match=remedy):
        open_trials(tmp_path / words)


def test_contradictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSuite, match="leave out"):
        open_trials(tmp_path, tmp_path, frozen="list.json")
    with pytest.raises(InvalidSupport, match="1 or more"):
        DrawSettings(n_shot=0)
    support = Support(("x", "y"), (0, 1), ("a", "b"), "texts")
    for queries, truth in (((), ()), (("q",), (0, 1)), (("q",), (2,))):
        with pytest.raises(InvalidSupport, match="quer"):
            Trial("t", "", support, queries, truth)
