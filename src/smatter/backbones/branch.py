"""Where networks that share their first modules part, and what a set of them costs.

Members of such a set have the same weights up to a branch, so that a batch passes through the part before it, the
trunk, once for all of them: see `trunk`. Nothing here needs torch.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from smatter.errors import UnknownModule

EXAMPLES = 6
"""Modules that an error names."""


def tail_modules(modules: Iterable[str], branch: str) -> tuple[str, ...]:
    """The modules from a branch on.

    Args:
        modules: names of all modules in the order in which a pass reaches them, as `module_shares` gives them. A
            partition does not promise that order: it sorts by name, which puts GPT-2's embeddings behind its layers.
        branch: a module, or a group of them (`encoder.stages.2`), which stands for its first one. The first module of
            all leaves no trunk: members are whole networks.

    >>> tail_modules(["embeddings", "stages.0.layers.0", "stages.1.downsampling", "stages.1.layers.0"], "stages.1")
    ('stages.1.downsampling', 'stages.1.layers.0')
    """
    names = tuple(modules)
    for place, name in enumerate(names):
        if name == branch or name.startswith(f"{branch}."):
            return names[place:]
    step = -(-len(names) // EXAMPLES) or 1
    raise UnknownModule(
        f"no module is called {branch[:100]!r} or begins with it: branch at one of {', '.join(names[::step])[:400]}"
    )


def passes_of(shares: Mapping[str, float], tails: Sequence[Collection[str]]) -> float:
    """What a batch through a set of members costs, in forward passes of one network.

        passes = trunk + n_members * (1 - trunk),      trunk = sum of the shares of modules that are in no tail

    Args:
        shares: of one pass that each module takes, which sum to 1.
        tails: of each member, the modules from its branch on. Members that part later than others still run from the
            first branch, since one trunk serves all.

    >>> passes_of({"embeddings": 0.1, "layer.0": 0.5, "layer.1": 0.4}, [["layer.1"], ["layer.1"], ["layer.1"]])
    1.8
    """
    if not tails:
        return 0.0
    apart = set().union(*tails)
    if unknown := sorted(apart - shares.keys()):
        raise UnknownModule(f"no share is known of module {unknown[0][:100]!r}: give those of the same network")
    return 1 + (len(tails) - 1) * sum(shares[module] for module in apart)
