"""Meta-training of a router: tasks in, query losses down, until validation tasks say that it is enough.

Every step's tasks follow from the seed and the step's number, and all that changes is kept, so that a run that was
killed goes on to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.train.budget_trainee import BudgetTrainee, BudgetValidation
from smatter.train.curriculum import Curriculum
from smatter.train.lessons import made_ahead, make_lesson, signals_wait
from smatter.train.log import Log
from smatter.train.state import keep, resume
from smatter.train.trainee import Trainee, Validation

STATE, LOG = "state.safetensors", "log.jsonl"


@dataclass(frozen=True)
class Outcome:
    """How a run of training ended.

    Args:
        n_steps: done in all.
        validation: what the router was worth when it was best, and is as it was then; none without validation tasks.
    """

    n_steps: int
    validation: Validation | BudgetValidation | None


def meta_train(
    trainee: Trainee | BudgetTrainee,
    curriculum: Curriculum,
    folder: Path | None = None,
    save_every: int = 25,
    n_workers: int = 0,
    watch: Callable[[Any], None] = lambda _: None,
) -> Outcome:
    """Train a router or its experts in place; in the end they are as they were when validation tasks found them best.

    Args:
        trainee: what learns.
        curriculum: what it learns from, and is judged by.
        folder: for the log, and for what is needed to go on after an interruption.
        save_every: steps between two writes of the latter.
        n_workers: processes that prepare tasks meanwhile; how many does not change the result.
        watch: told each step and each validation.
    """
    settings, tensors = trainee.settings, trainee.state
    best = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    score = torch.tensor([0, torch.inf, torch.inf, 0, 0], dtype=torch.float64)
    kept = tensors | {f"best.{name}": tensor for name, tensor in best.items()} | {"score": score}
    # How many steps are wanted tells no runs apart: more of them extend a training.
    key = json.dumps([asdict(settings) | {"n_steps": None}, trainee.key, curriculum.key])
    done = 0
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        done = resume(folder / STATE, key, kept, trainee.optimizer)
        if not done and (folder / STATE).exists():
            raise InvalidSettings(f"{folder} holds another training: delete it, or choose another folder to work in")
        if done > settings.n_steps:
            raise InvalidSettings(f"{folder} holds a training of {done} steps: ask for more to extend it")
    log = Log(None if folder is None else folder / LOG, done)
    live, everyone = trainee.live, tuple(range(len(trainee.sources)))
    validation = [
        make_lesson(live, episode, everyone, with_evidence=True) for tasks in curriculum.validation for episode in tasks
    ]
    timetable = trainee.timetable(curriculum.training, folder)
    step = done
    references: dict[str, float] = dict(log.last(trainee.judged).get("references", {}))

    def best_so_far() -> Validation | BudgetValidation:
        best_step, *numbers = score.tolist()
        return trainee.judged(int(best_step), *numbers)

    def save() -> None:
        if folder is not None:
            keep(folder / STATE, key, step, kept, trainee.optimizer)

    def judge() -> None:
        """Validate where it is due; a run that was stopped meanwhile begins with that."""
        is_due = step == settings.n_steps or step % settings.validate_every == 0
        if not validation or not step or not is_due or log.last(trainee.judged).get("step") == step:
            return
        if not references:
            references.update(trainee.references(validation))
        found = replace(trainee.validate(step, validation), references=references)
        with signals_wait():
            log.add(found)
            if found.mean_loss < best_so_far().mean_loss:
                score.copy_(torch.tensor(found.numbers))
                _copy(tensors, best)
        watch(found)

    try:
        judge()
        with made_ahead(live, timetable, range(done, settings.n_steps), n_workers) as all_lessons:
            for lessons in all_lessons:
                if _is_enough(step, best_so_far().step, settings.patience):
                    break
                with signals_wait():  # a step is done or not, whoever asks the program to end
                    log.add(told := trainee.step(step, lessons))
                    step += 1
                watch(told)
                judge()
                if step % save_every == 0:
                    save()
        save()
    except BaseException as error:
        if folder is not None and not isinstance(error, Exception):
            save()
            error.add_note(f"{step} steps are kept: run the same command again to go on")
        raise
    if validation:
        _copy(best, tensors)
        return Outcome(step, replace(best_so_far(), references=references))
    return Outcome(step, None)


def _is_enough(step: int, best: int, patience: int) -> bool:
    """Whether the validation tasks have seen nothing better for long."""
    return best > 0 and step - best >= patience


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in source.items():
            target[name].copy_(tensor)
