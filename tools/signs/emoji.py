"""Emoji: kinds of things in colour, line and high contrast; faces and people told apart by identity."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from art import Drawing, IconSet, rasterise
from download import Cache
from fonts import Face, key_of
from tiles import Domain, Draft, Group, Pixels, Tile, is_drawn, limited, lot, without_doubles

COLOUR = ("noto", "noto-v1", "twemoji", "openmoji", "fluent-emoji-flat", "fluent-emoji", "emojione", "emojione-v1",
          "fxemoji", "streamline-emojis")  # fmt: skip
FACES = ("face-", "cat-face", "monkey-face")
PEOPLE = ("hand", "person", "body-parts", "family")
UNUSED = ("country-flag", "subdivision-flag", "skin-tone", "hair-style")
WEIGHTS = (300, 700)
TONED = ("openmoji", "fluent-emoji-flat", "emojione")
"""Sets whose people appear a second time, with a medium-dark skin."""
TONE = 4
N_OF_A_KIND = 40
N_TURNS = 3
"""How often an emoji may stand for its kind, each time in another style."""

Draw = Callable[["Emoji"], Pixels | None]


@dataclass(frozen=True)
class Emoji:
    """One emoji of the Unicode list."""

    codes: str
    label: str
    kind: str
    toned: "Emoji | None" = None

    @property
    def names(self) -> Iterator[str]:
        """What icon sets without code points call it: the label in words, or Unicode's name run together."""
        words = re.sub(r"[^a-z0-9]+", "-", self.label.lower().replace("\u2019", "")).strip("-")
        yield words
        yield words.replace("-", "")
        if len(self.text) == 1:
            yield re.sub(r"[^a-z0-9]", "", unicodedata.name(self.text, "").lower())

    @property
    def text(self) -> str:
        """The characters."""
        return "".join(chr(int(code, 16)) for code in self.codes.split("-"))


def emoji_list(cache: Cache) -> list[Emoji]:
    """Every emoji with its subgroup, without skin tones, in the order of Unicode."""
    package = cache.package("npm", "emojibase-data")
    kinds = package.json("meta/groups.json")["subgroups"]
    listed = []
    for entry in sorted(package.json("en/data.json"), key=lambda entry: entry.get("order", 10**6)):
        kind = kinds.get(str(entry.get("subgroup")))
        if kind and not kind.startswith(UNUSED):
            toned = next((skin for skin in entry.get("skins", ()) if skin["tone"] == TONE), None)
            listed.append(_emoji(entry, kind, toned and _emoji(toned, kind)))
    package.close()
    return listed


def _emoji(entry: dict, kind: str, toned: Emoji | None = None) -> Emoji:
    codes = "-".join(code for code in entry["hexcode"].lower().split("-") if code != "fe0f")
    return Emoji(codes, entry["label"], kind, toned)


def set_painter(icon_set: IconSet, colour: bool) -> Draw:
    """Draws an emoji as an Iconify set does."""

    def draw(emoji: Emoji) -> Pixels | None:
        name = icon_set.find(emoji.codes, emoji.names)
        return None if name is None else icon_set.draw(name, colour)

    return draw


def tone_painter(icon_set: IconSet) -> Draw:
    """Draws the emoji with another skin, where there is one."""
    plain = set_painter(icon_set, colour=True)
    return lambda emoji: plain(emoji.toned) if emoji.toned else None


def outline_painter(icon_set: IconSet) -> Draw:
    """Keeps the dark lines of a set that fills dark outlines with colour."""

    def draw(emoji: Emoji) -> Pixels | None:
        name = icon_set.find(emoji.codes, emoji.names)
        drawing = None if name is None else icon_set.drawing(name)
        return None if drawing is None else rasterise(_lines_only(drawing), colour=False)

    return draw


def _lines_only(drawing: Drawing) -> str:
    def plain(found: re.Match[str]) -> str:
        digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
        red, green, blue = (int(digits[start : start + 2], 16) for start in (0, 2, 4))
        return "#000" if max(red, green, blue) < 80 else "#fff"

    return re.sub(r"#([0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b", plain, drawing.svg())


def face_painter(face: Face) -> Draw:
    """Draws an emoji of one character in a font."""
    return lambda emoji: face.draw(emoji.text) if len(emoji.text) == 1 else None


def emoji_domain(name: str, cache: Cache) -> Domain:
    """One of the domains of emoji, by its name."""
    return DOMAINS[name](cache)


def _colour(cache: Cache) -> tuple[dict[str, IconSet], dict[str, Draw]]:
    sets = {prefix: IconSet.of(cache, prefix) for prefix in COLOUR}
    return sets, {prefix: set_painter(icon_set, colour=True) for prefix, icon_set in sets.items()}


def _things(cache: Cache) -> Domain:
    sets, painters = _colour(cache)
    things = [emoji for emoji in emoji_list(cache) if not emoji.kind.startswith(FACES + PEOPLE)]
    groups = kinds(things, painters)
    return Domain("emoji-kinds", "Emoji in colour, by kind of thing", "id", groups, _names(sets.values()), colour=True)


def _people(cache: Cache) -> Domain:
    sets, painters = _colour(cache)
    toned = {f"{prefix} toned": tone_painter(sets[prefix]) for prefix in TONED}
    groups = identities(_of(emoji_list(cache), PEOPLE), painters | toned)
    title = "People and hands in colour, by identity"
    return Domain("emoji-people", title, "id", groups, _names(sets.values()), colour=True)


def _faces(cache: Cache) -> Domain:
    sets, painters = _colour(cache)
    groups = identities(_of(emoji_list(cache), FACES), painters)
    return Domain("emoji-faces", "Faces in colour, by identity", "ood", groups, _names(sets.values()), colour=True)


def _line(cache: Cache) -> Domain:
    font = cache.package("npm", "@fontsource/noto-emoji")
    sets = [IconSet.of(cache, prefix) for prefix in ("openmoji", "streamline-emojis")]
    painters = {face.style: face_painter(face) for face in (Face(font, weight) for weight in WEIGHTS)}
    painters |= {f"{icon_set.prefix} outline": outline_painter(icon_set) for icon_set in sets}
    groups = kinds(emoji_list(cache), painters)
    return Domain("emoji-line", "Emoji as line drawings, by kind", "ood", groups, (font.name, *_names(sets)))


def _contrast(cache: Cache) -> Domain:
    sets = [IconSet.of(cache, prefix) for prefix in ("fluent-emoji-high-contrast", "emojione-monotone")]
    painters = {icon_set.prefix: set_painter(icon_set, colour=False) for icon_set in sets}
    groups = kinds(emoji_list(cache), painters)
    return Domain("emoji-contrast", "Emoji in high contrast, by kind", "ood", groups, _names(sets))


DOMAINS: dict[str, Callable[[Cache], Domain]] = {
    "emoji-kinds": _things,
    "emoji-people": _people,
    "emoji-faces": _faces,
    "emoji-line": _line,
    "emoji-contrast": _contrast,
}


def _names(sets: Iterable[IconSet]) -> tuple[str, ...]:
    return ("emojibase-data", *(icon_set.package.name for icon_set in sets))


def _of(listed: Iterable[Emoji], kinds_wanted: tuple[str, ...]) -> list[Emoji]:
    return [emoji for emoji in listed if emoji.kind.startswith(kinds_wanted)]


def identities(listed: Iterable[Emoji], painters: dict[str, Draw]) -> tuple[Group, ...]:
    """A class is an emoji, an example is one style's drawing."""
    draft = Draft()
    for emoji in listed:
        for style, draw in painters.items():
            draft.add(key_of(emoji.text), emoji.label, style, draw(emoji))
    return tuple(limited(without_doubles(draft.groups()), 14, least=8))


def kinds(listed: Iterable[Emoji], painters: dict[str, Draw]) -> tuple[Group, ...]:
    """A class is a subgroup of Unicode's list, an example is one of its emoji in one style.

    Every emoji appears once before any appears twice.
    """
    by_kind: dict[str, list[Emoji]] = {}
    for emoji in listed:
        by_kind.setdefault(emoji.kind, []).append(emoji)
    groups = []
    for kind, members in by_kind.items():
        ranked = []
        for emoji in members:
            styles = sorted(painters, key=lambda style, emoji=emoji: lot(f"{style} {emoji.codes}"))
            drawn = ((style, painters[style](emoji)) for style in styles)
            found = islice((pair for pair in drawn if is_drawn(pair[1])), N_TURNS)
            ranked += [(turn, lot(emoji.codes), Tile(style, pixels)) for turn, (style, pixels) in enumerate(found)]
        ranked.sort(key=lambda entry: entry[:2])
        groups.append(Group(kind.replace("-", " "), f"emoji-{kind}", tuple(tile for _, _, tile in ranked)))
    distinct = without_doubles(groups)
    return tuple(replace(group, tiles=group.tiles[:N_OF_A_KIND]) for group in distinct if len(group.tiles) >= 8)
