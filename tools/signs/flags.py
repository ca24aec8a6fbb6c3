"""Flags of countries: a class is a country, an example is one designer's drawing of its flag."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from art import IconSet, rasterise
from download import Cache, Package
from tiles import Domain, Draft, Group, Pixels, limited, without_doubles

EMOJI_SETS = ("twemoji", "noto-v1", "openmoji", "emojione", "emojione-v1", "fxemoji", "streamline-emojis")
CODE_SETS = {"circle-flags": "{}", "flagpack": "{}", "flag": "{}-4x3", "cif": "{}"}

STRANGE = 100
N_COUNTRIES = 120

Draw = Callable[[str, str], Pixels | None]
"""From the two letters of a country and its name."""


def _regional(country: str) -> str:
    return "-".join(f"{0x1F1E6 + ord(letter) - ord('a'):x}" for letter in country)


def _by_character(icon_set: IconSet) -> Draw:
    def draw(country: str, label: str) -> Pixels | None:
        words = re.sub(r"[^a-z]+", "-", label.lower().replace("&", "and")).strip("-")
        usual = f"flag-for-{words}", f"{words.replace('-', '')}flag", words
        name = icon_set.find(_regional(country), usual)
        return None if name is None else icon_set.draw(name, colour=True)

    return draw


def _by_code(icon_set: IconSet, pattern: str) -> Draw:
    return lambda country, _: icon_set.draw(pattern.format(country), colour=True)


def _by_file(package: Package, pattern: str) -> Draw:
    def draw(country: str, _: str) -> Pixels | None:
        member = pattern.format(country.upper())
        return rasterise(package.read(member).decode(), colour=True) if member in package else None

    return draw


def without_strangers(group: Group) -> Group:
    """Drop drawings whose middle has another colour than most: sets sometimes name a flag wrongly."""
    middles = np.array([tile.pixels[10:22, 10:22].mean(axis=(0, 1)) for tile in group.tiles])
    far = np.linalg.norm(middles - np.median(middles, axis=0), axis=1) > STRANGE
    return replace(group, tiles=tuple(tile for tile, odd in zip(group.tiles, far, strict=True) if not odd))


def most_alike(groups: list[Group], n_groups: int) -> list[Group]:
    """The classes whose mean picture is nearest to that of three others: unmistakable flags teach little."""
    means = np.array([np.mean([tile.pixels for tile in group.tiles], axis=0).ravel() for group in groups])
    squares = (means**2).sum(axis=1)
    distances = squares[:, None] + squares[None] - 2 * means @ means.T
    third = np.sort(distances, axis=1)[:, 3]
    nearest = sorted(range(len(groups)), key=lambda index: (round(third[index]), index))[:n_groups]
    return [groups[index] for index in sorted(nearest)]


def flag_domain(cache: Cache) -> Domain:
    """Countries that at least eight styles draw."""
    sets = {prefix: IconSet.of(cache, prefix) for prefix in (*EMOJI_SETS, *CODE_SETS)}
    package = cache.package("npm", "country-flag-icons")
    painters = {prefix: _by_character(sets[prefix]) for prefix in EMOJI_SETS}
    painters |= {prefix: _by_code(sets[prefix], pattern) for prefix, pattern in CODE_SETS.items()}
    painters["country-flag-icons"] = _by_file(package, "3x2/{}.svg")
    listed = cache.package("npm", "emojibase-data").json("en/data.json")
    countries = {
        "".join(chr(int(code, 16) - 0x1F1E6 + ord("a")) for code in entry["hexcode"].split("-")): entry["label"][6:]
        for entry in listed
        if entry["label"].startswith("flag:") and entry["hexcode"].startswith("1F1")
    }
    draft = Draft()
    for country in sorted(countries):
        for style, draw in painters.items():
            draft.add(f"flag-{country}", countries[country], style, draw(country, countries[country]))
    groups = most_alike(limited(without_doubles(map(without_strangers, draft.groups())), 12, least=8), N_COUNTRIES)
    packages = (*(icon_set.package.name for icon_set in sets.values()), package.name)
    for icon_set in sets.values():
        icon_set.package.close()
    package.close()
    return Domain("flags", "Flags of countries", "id", tuple(groups), packages, colour=True)
