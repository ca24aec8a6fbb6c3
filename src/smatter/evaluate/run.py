"""Every method on every task, each scored once and kept, by one process or several."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from smatter import __version__
from smatter.errors import CannotWrite, InvalidSettings, NotFound, SmatterError
from smatter.evaluate.compare import Comparison, Score, Scored
from smatter.evaluate.contenders import Contender, contenders
from smatter.evaluate.trials import Trial, Trials
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.library.library import Library, open_library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.records import Progress, silent
from smatter.route.place import has_posterior, router_identity
from smatter.route.store import read_router
from smatter.steps.judge import judged_model
from smatter.train.lessons import begin_worker, signals_wait

FORMAT = 3
"""Raised when scores of earlier versions must not be found any more."""

Job = tuple[int, Contender]
"""Number of a trial, and who is scored on it."""


def evaluate_methods(
    library: Library | str | Path,
    trials: Trials | Sequence[Trial],
    methods: Sequence[str] = ("all",),
    *,
    router: str | Path | None = None,
    cache: str | Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> Comparison:
    """Score methods on tasks; a method that raises on one is told as failed and harms no other.

    Args:
        library: an open library or its folder.
        trials: tasks with queries; see `open_trials`.
        methods: who takes part; see `contenders`.
        router: folder of a trained router, for methods that ask one.
        cache: a folder where each score is kept, so that a run that was stopped goes on.
        n_workers: processes.
        progress: called with 1 for every method on every task.
    """
    library = library if isinstance(library, Library) else open_library(library)
    asks_posterior = router is not None and has_posterior(Path(router))
    taking_part = contenders(library, methods, router is not None, asks_posterior)
    settings: dict[str, Any] = {"router": router, "cache": cache, "n_workers": n_workers, "progress": progress}
    compared = score_contenders(library, trials, taking_part, **settings)
    if not compared.complete:
        raise InvalidSettings(f"every method failed, {compared.standings[0].name}: {compared.standings[0].failure}")
    return compared


def score_contenders(
    library: Library,
    trials: Trials | Sequence[Trial],
    taking_part: Sequence[Contender],
    *,
    router: str | Path | None = None,
    cache: str | Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> Comparison:
    """The same for contenders, of whom all may fail.

    Args:
        library: open.
        trials: tasks with queries.
        taking_part: who is scored on each.
        router: folder of a trained router, for methods that ask one.
        cache: a folder where each score is kept.
        n_workers: processes.
        progress: called with 1 for every contender on every task.
    """
    kept = _Kept(cache, library, router)
    if not len(trials):
        raise InvalidSettings("there is no task to score methods by: give at least one")
    tasks, digests = zip(*((Scored.of(trial), trial.digest) for trial in trials), strict=True)
    found: dict[Job, Score | str] = {}
    missing: list[Job] = []
    for job in ((index, each) for index in range(len(tasks)) for each in taking_part):
        score = kept.get(job[1], digests[job[0]])
        if score is None:
            missing.append(job)
        else:
            found[job] = score
            progress(1)
    try:
        for job, result in _scores(library, trials, router, missing, n_workers):
            found[job] = result
            if isinstance(result, Score):
                kept.put(job[1], digests[job[0]], result)
            progress(1, f"{job[1].name} on {tasks[job[0]].name}")
    except BaseException as error:
        if cache is not None and not isinstance(error, Exception):
            error.add_note(f"{len(found)} of {len(tasks) * len(taking_part)} scores are kept: run this again to go on")
        raise
    told = trials.told if isinstance(trials, Trials) else f"{len(tasks)} tasks"
    scores = {each.name: [found[index, each] for index in range(len(tasks))] for each in taking_part}
    return Comparison(told, tasks, scores)


class Scorer:
    """Scores methods on trials with one network in memory.

    Args:
        library: whose network it is.
        trials: tasks with queries.
        router: folder of a trained router, if there is one.
    """

    def __init__(self, library: Library, trials: Trials | Sequence[Trial], router: str | Path | None) -> None:
        self.trials, self.live = trials, LiveMixture(library)
        self.router = read_router(router) if router is not None else None
        if self.router is not None:
            self.router.check_fits(self.live)
            self.router.describe(self.live, library.names)  # once, or the first task would be charged with it
        self._last: tuple[int, Trial, Task] | None = None

    def score(self, index: int, contender: Contender) -> Score | str:
        """How a method does on a trial, or why it fails."""
        if self._last is None or self._last[0] != index:
            trial = self.trials[index]
            self._last = index, trial, Task.of(self.live, trial.support)  # examples that cannot be read are no failure
        try:
            return self._score(contender, *self._last[1:])
        except Exception as error:  # whatever it is, it is this method's
            kind = "" if isinstance(error, SmatterError) else f"{type(error).__name__}: "
            return f"{kind}{' '.join(str(error).split())[:500]}"

    def _score(self, contender: Contender, trial: Trial, task: Task) -> Score:
        live, begin = self.live, time.perf_counter()
        forwards, backwards = live.n_forwards, live.n_backwards
        task = task.with_queries(live, trial.queries) if contender.sees_queries else task
        fit = contender.fit(live, task, self.router)
        adapted = judged_model(live, task, fit, class_names=trial.support.class_names)
        seconds = time.perf_counter() - begin
        forwards, backwards = live.n_forwards - forwards, live.n_backwards - backwards
        probabilities = adapted.predict(trial.queries).probabilities
        if not bool(torch.isfinite(probabilities).all()):
            raise InvalidSettings("the model gives no number for some queries")
        truth = torch.nn.functional.one_hot(torch.tensor(trial.truth), probabilities.shape[1])
        own = probabilities[truth.bool()]
        return Score(
            named=tuple(probabilities.argmax(dim=1).tolist()),
            losses=tuple(own.double().clamp_min(torch.finfo(own.dtype).tiny).log().neg().tolist()),
            seconds=seconds,
            forwards=forwards,
            backwards=backwards,
            query_passes=adapted.query_passes,
            briers=tuple((((probabilities.double() - truth) ** 2).sum(dim=1) / 2).tolist()),
            uncertainty=adapted.uncertainty,
        )


class _Kept:
    """Scores in a folder, a small file each, by the contents of task, library and router."""

    def __init__(self, folder: str | Path | None, library: Library, router: str | Path | None) -> None:
        self.folder, manifest = None if folder is None else Path(folder), library.manifest
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = error.strerror or error
                raise CannotWrite(f"cannot keep scores in {folder} ({reason}); give another --cache") from None
        if router is not None and not Path(router).is_dir():
            raise NotFound(f"{router} is no folder; give the router's, which `smatter train` wrote")
        routing = "" if router is None else router_identity(Path(router))
        sources = [manifest.base, library.partition.digest, sorted(manifest.digests.items())]
        self.common = [FORMAT, __version__, sources, routing]

    def get(self, contender: Contender, task: str) -> Score | None:
        """A score, if it was kept; a damaged one is none."""
        if self.folder is None:
            return None
        try:
            return Score.model_validate(read_small_json(self._file(self.folder, contender, task)))
        except (SmatterError, OSError, ValidationError):
            return None

    def put(self, contender: Contender, task: str, score: Score) -> None:
        """Keep a score."""
        if self.folder is not None:
            write_file(self._file(self.folder, contender, task), score.model_dump_json().encode())

    def _file(self, folder: Path, contender: Contender, task: str) -> Path:
        parts = [*self.common, contender.source, contender.method, contender.settings, contender.sees_queries, task]
        return folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}.json"


def _scores(
    library: Library,
    trials: Trials | Sequence[Trial],
    router: str | Path | None,
    jobs: Sequence[Job],
    n_workers: int,
) -> Iterator[tuple[Job, Score | str]]:
    """The result of each job, as soon as it is known."""
    if min(n_workers, len(jobs)) <= 1:
        scorer = Scorer(library, trials, router) if jobs else None
        for job in jobs:
            assert scorer is not None
            yield job, scorer.score(*job)
        return
    settings = (library.folder, library.names, trials, router)
    with ProcessPoolExecutor(min(n_workers, len(jobs)), get_context("spawn"), _begin, settings) as pool:
        try:
            with signals_wait():  # the first call starts the processes, which complain if they lose their parent then
                waiting = {pool.submit(_work, *job): job for job in jobs}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise InvalidSettings(
                "a worker process ended by itself, perhaps for lack of memory: run again with fewer --workers; what "
                "was scored is kept"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


_settings: tuple[Library, Trials | Sequence[Trial], str | Path | None] | None = None
_scorer: Scorer | None = None
"""What a worker process keeps."""


def _begin(folder: Path, sources: Sequence[str], trials: Trials | Sequence[Trial], router: str | Path | None) -> None:
    global _settings
    begin_worker()
    _settings = open_library(folder).only(sources), trials, router


def _work(index: int, contender: Contender) -> Score | str:
    global _scorer
    if _scorer is None:  # not sooner: what is wrong with a library or a router must be told, not break the pool
        assert _settings is not None
        _scorer = Scorer(*_settings)
    return _scorer.score(index, contender)
