"""Glosses of WordNet: a class is a concept, its texts are the glosses of all that is a kind of it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from download import Cache
from passages import Domain, Found, choose

PACKAGE = "wordnet-base"
FOLDER = "usr/share/wordnet"
LARGEST = 300
"""Glosses of a class; what has more below it is too wide and gives way to its parts."""
SMALLEST = 30
PERSON, LIVING, ARTIFACT, SUBSTANCE, ABSTRACT = 7846, 4258, 21939, 20827, 2137
"""The synsets `person`, `living thing`, `artifact`, `matter` and `abstraction`."""

DULL = frozenset({"biological group", "taxonomic group"})
"""Their glosses are all alike: type genus of such and such a family."""


@dataclass
class Synset:
    """A set of synonyms.

    Args:
        words: the synonyms.
        gloss: what they mean, without examples of their use.
        parent: number of what it is a kind of; none for a root, and for names of single things.
        children: numbers of its kinds.
    """

    words: tuple[str, ...]
    gloss: str
    parent: int | None
    children: list[int] = field(default_factory=list)


def parse(lines: Iterable[str]) -> dict[int, Synset]:
    """Synsets of a data file by number; of several things that one is a kind of, the first is its parent."""
    synsets = {}
    for line in lines:
        if line.startswith(" "):  # the licence
            continue
        head, _, gloss = line.partition(" | ")
        fields = head.split()
        n_words = int(fields[3], 16)
        words = tuple(fields[4 + 2 * i].replace("_", " ") for i in range(n_words))
        at = 5 + 2 * n_words
        pointers = [fields[at + 4 * i : at + 4 * i + 2] for i in range(int(fields[at - 1]))]
        parents = [int(number) for kind, number in pointers if kind == "@"]
        synsets[int(fields[0])] = Synset(words, gloss.partition('; "')[0].strip(), parents[0] if parents else None)
    for number, synset in synsets.items():
        if synset.parent is not None:
            synsets[synset.parent].children.append(number)
    return synsets


def below(synsets: dict[int, Synset], root: int) -> Iterator[int]:
    """Everything that is a kind of a synset, without itself."""
    for child in synsets[root].children:
        yield child
        yield from below(synsets, child)


def concepts(synsets: dict[int, Synset], roots: Iterable[int], without: int | None = None) -> Iterator[int]:
    """The widest concepts below some roots that are not too wide; none is a kind of another, or of `without`."""
    for root in roots:
        if root == without or DULL & set(synsets[root].words):
            continue
        size = sum(1 for _ in below(synsets, root))
        if size > LARGEST:
            yield from concepts(synsets, synsets[root].children, without)
        elif size >= SMALLEST:
            yield root


def glosses(synsets: dict[int, Synset], roots: Iterable[int], without: int | None = None) -> Found:
    """Glosses by concept; a concept is called by its first word, or by two where that is another's too."""
    chosen = sorted(concepts(synsets, roots, without))
    first = Counter(synsets[number].words[0].casefold() for number in chosen)
    found: Found = {}
    for number in chosen:
        words = synsets[number].words
        name = words[0] if first[words[0].casefold()] == 1 else f"{words[0]} ({_more(synsets, number)})"
        found[name] = [synsets[each].gloss for each in below(synsets, number)]
    return found


def _more(synsets: dict[int, Synset], number: int) -> str:
    """What tells a concept from another of the same word: a synonym, what it is a kind of, or how its gloss begins."""
    synset = synsets[number]
    if len(synset.words) > 1:
        return synset.words[1]
    return " ".join(synset.gloss.split()[:3]) if synset.parent is None else synsets[synset.parent].words[0]


def wordnet_domains(cache: Cache) -> Iterator[Domain]:
    """Nouns for things and for ideas, and verbs."""
    package = cache.package("apt", PACKAGE)
    nouns, verbs = (parse(package.read(f"{FOLDER}/data.{part}").decode().splitlines()) for part in ("noun", "verb"))
    package.close()
    starts = [number for number, synset in verbs.items() if synset.parent is None]
    for name, title, role, found in (
        ("people", "Who people are: glosses of nouns", "id", glosses(nouns, [PERSON])),
        ("life", "What lives: glosses of nouns", "id", glosses(nouns, [LIVING], PERSON)),
        ("artifacts", "What is made: glosses of nouns", "id", glosses(nouns, [ARTIFACT])),
        ("ideas", "What is thought: glosses of nouns", "id", glosses(nouns, [ABSTRACT])),
        ("actions", "What is done: glosses of verbs", "id", glosses(verbs, starts)),
        ("matter", "What it is made of: glosses of nouns", "ood", glosses(nouns, [SUBSTANCE])),
    ):
        yield Domain(name, title, role, choose(found), (PACKAGE,))
