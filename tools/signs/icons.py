"""Interface icons: a class is a name that many sets share, an example is one set's drawing of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from art import IconSet
from download import Cache
from tiles import Domain, Draft, limited, without_doubles

TABLE = json.loads((Path(__file__).parent / "icons.json").read_text())
SETS: dict[str, dict[str, str]] = TABLE["sets"]
"""By set: the ending of a name ("" for none) and the kind it draws, line or solid."""
SYNONYMS: dict[str, str] = {word: words.split()[0] for words in TABLE["synonyms"] for word in words.split()}
N_CLASSES: dict[str, int] = TABLE["classes"]
SPARE = 30
"""More names drawn than kept, because some lose examples to doubles."""
EXCLUDED: set[str] = set(TABLE["excluded"])


def variants(icon_set: IconSet) -> Iterator[tuple[str, str, str, str]]:
    """Icons of a set as (kind, style, concept, icon name)."""
    endings = sorted(SETS[icon_set.prefix].items(), key=lambda item: -len(item[0]))
    for name in icon_set.names:
        for ending, kind in endings:
            if name.endswith(ending):
                concept = re.sub(r"-(0?1|alt)$", "", name.removesuffix(ending).replace("_", "-"))
                if kind and not concept.endswith("-off"):
                    yield kind, icon_set.prefix + ending, SYNONYMS.get(concept, concept), name
                break


def icon_domain(kind: str, role: str, cache: Cache) -> Domain:
    """Line icons or solid icons: the names that most styles share."""
    drawn_by: dict[str, dict[str, tuple[IconSet, str]]] = {}
    sets = [IconSet.of(cache, prefix) for prefix, endings in SETS.items() if kind in endings.values()]
    for icon_set in sets:
        for found, style, concept, name in variants(icon_set):
            if found == kind:
                drawn_by.setdefault(concept, {}).setdefault(style, (icon_set, name))
    most = N_CLASSES[kind]
    shared = [concept for concept, drawn in drawn_by.items() if _fit(concept, len(drawn))]
    draft = Draft()
    for concept in sorted(shared, key=lambda concept: (-len(drawn_by[concept]), concept))[: most + SPARE]:
        for style, (icon_set, name) in drawn_by[concept].items():
            draft.add(f"icon-{concept}", concept.replace("-", " "), style, icon_set.draw(name))
    groups = limited(without_doubles(draft.groups()), most=20, least=9)[:most]
    groups.sort(key=lambda group: group.key)
    used = {tile.style for group in groups for tile in group.tiles}
    packages = tuple(s.package.name for s in sets if any(s.prefix + ending in used for ending in SETS[s.prefix]))
    return Domain(f"icons-{kind}", f"Interface icons, {kind}", role, tuple(groups), packages)


def _fit(concept: str, n_styles: int) -> bool:
    words = concept.split("-")
    return n_styles >= 10 and concept not in EXCLUDED and not any(len(word) == 1 for word in words)
