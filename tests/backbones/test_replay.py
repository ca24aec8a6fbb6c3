"""Networks that use their parts in ways that make sharing unsafe: results stay right, and what is safe is shared."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smatter.backbones.trunk import Members

WIDTH = 6


class Counted(nn.Module):
    """A linear part that counts its calls; others may say what it does with its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.n_calls = nn.Linear(WIDTH, WIDTH), 0

    def forward(self, *given: Any, **options: Any) -> Any:
        self.n_calls += 1
        return self.compute(*given, **options)

    def compute(self, hidden: Tensor) -> Any:
        return torch.tanh(self.linear(hidden))


class Network(nn.Module):
    part: type[Counted] = Counted

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.tail = self.part(), Counted()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden))


class CalledThrice(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(self.trunk(self.trunk(hidden))))


class CalledAfterTheTail(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.trunk(self.tail(self.trunk(hidden)))


class RunsBesideTheTail(Network):
    """A trunk that does not depend on the tail but runs after it is computed again."""

    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(hidden) + self.trunk(hidden)


class WritesToItsOutput(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden).add_(1.0))


class WritesToAViewOfIt(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.trunk(hidden)
        hidden[:, :2].zero_()
        return self.tail(hidden)


class WritesInTheTail(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.trunk(hidden)
        hidden += self.tail(hidden)
        return hidden


class InPlace(Counted):
    def compute(self, hidden: Tensor) -> Tensor:
        return super().compute(hidden.mul_(2.0))


class WritesToItsInput(Network):
    part = InPlace

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.clone()
        return self.tail(self.trunk(hidden)) + hidden


class GivesBackItsInput(Counted):
    def compute(self, hidden: Tensor) -> Tensor:
        return hidden


class InputGivenBackAndWritten(Network):
    part = GivesBackItsInput

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.clone()
        self.trunk(hidden).mul_(3.0)
        return self.tail(hidden)


class LeavesANote(Counted):
    def compute(self, hidden: Tensor, notes: dict[str, Tensor]) -> Tensor:
        notes["seen"] = hidden * 2
        return super().compute(hidden)


class NotesInADictionary(Network):
    part = LeavesANote

    def forward(self, hidden: Tensor) -> Tensor:
        notes: dict[str, Tensor] = {}
        hidden = self.trunk(hidden, notes=notes)
        return self.tail(hidden + notes["seen"])


class LeavesAnAttribute(Counted):
    def compute(self, hidden: Tensor, notes: SimpleNamespace) -> Tensor:
        notes.seen = hidden * 2
        return super().compute(hidden)


class NotesInAnObject(Network):
    part = LeavesAnAttribute

    def forward(self, hidden: Tensor) -> Tensor:
        notes = SimpleNamespace()
        return self.tail(self.trunk(hidden, notes) + notes.seen)


class TakesWeights(Counted):
    def compute(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return super().compute(hidden @ weight)


class GivenTheTailsWeight(Network):
    part = TakesWeights

    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden, self.tail.linear.weight))


class ReadsTheTailsWeight(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden + self.tail.linear.weight.sum()))


class Tied(Network):
    def __init__(self) -> None:
        super().__init__()
        self.trunk.linear.weight = self.tail.linear.weight


class OwnParameterFirst(Network):
    def __init__(self) -> None:
        super().__init__()
        self.tail_scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden * self.tail_scale))


class OwnParameterLast(OwnParameterFirst):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden)) * self.tail_scale


@dataclass
class Record:
    hidden: Tensor
    others: tuple[Any, ...]


class GivesARecord(Counted):
    def compute(self, record: Record, shift: list[Tensor], factor: float, name: str | None = None) -> Record:
        hidden = super().compute(factor * record.hidden + shift[0])
        return Record(hidden, ({"again": hidden * 2}, None, [hidden + 1]))


class Records(Network):
    part = GivesARecord

    def forward(self, hidden: Tensor) -> Tensor:
        record = self.trunk(Record(hidden, ()), [hidden], 0.5, name=None)
        record = self.trunk(record, shift=[hidden], factor=0.5)
        return self.tail(record.hidden + record.others[0]["again"] + record.others[2][0])


class ChangesTheRecord(Network):
    part = GivesARecord

    def forward(self, hidden: Tensor) -> Tensor:
        record = self.trunk(Record(hidden, ()), [hidden], 0.5)
        record.hidden = record.hidden + 1
        return self.tail(record.hidden)


class NoNumbers(Network):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.tail(self.trunk(hidden * float("nan")))


N_CALLS = {
    Network: 1, CalledThrice: 3, CalledAfterTheTail: 4, RunsBesideTheTail: 3, WritesToItsOutput: 3,
    WritesToAViewOfIt: 3, WritesInTheTail: 3, WritesToItsInput: 3, InputGivenBackAndWritten: 3, NotesInADictionary: 3,
    NotesInAnObject: 3, GivenTheTailsWeight: 3, ReadsTheTailsWeight: 3, Tied: 3, OwnParameterFirst: 3,
    OwnParameterLast: 1, Records: 2, ChangesTheRecord: 3, NoNumbers: 3,
}  # fmt: skip
"""How often three members run the trunk: once where that is safe."""


def seeded(network: type[Network]) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return network().eval()


@pytest.mark.parametrize("network", N_CALLS, ids=lambda network: network.__name__)
def test_results_are_those_of_whole_networks(network: type[Network]) -> None:
    model = seeded(network)
    inputs = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1))
    tails = [
        {name: (1 + number) * each.detach() for name, each in model.named_parameters(remove_duplicate=False)
         if name.startswith("tail")}
        for number in range(3)
    ]  # fmt: skip
    expected = []
    for tail in tails:
        whole = copy.deepcopy(model)
        with torch.no_grad():
            for name, tensor in tail.items():
                whole.get_parameter(name).copy_(tensor)
            expected.append(whole(inputs.clone()))
    stub = SimpleNamespace(model=model, features=lambda given: model(given["rows"]))
    given = inputs.clone()
    found = Members(stub, tails).features({"rows": given})
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(given, inputs)
    assert model.trunk.n_calls == N_CALLS[network] and model.tail.n_calls == 3


def test_members_that_differ_in_nothing_are_one_pass() -> None:
    model = seeded(Network)
    stub = SimpleNamespace(model=model, features=lambda given: model(given["rows"]))
    found = Members(stub, [{}, {}, {}]).features({"rows": torch.ones(2, WIDTH)})
    assert torch.equal(found[0], found[2]) and model.trunk.n_calls == model.tail.n_calls == 1
