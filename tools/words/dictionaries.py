"""Entries of dictionaries that say of which field a word is: a class is a field, its texts are definitions."""

import gzip
import re
from collections.abc import Iterator

from download import Cache
from passages import Domain, Found, choose

FIELDS = {
    "Zool.": "zoology", "Bot.": "botany", "Chem.": "chemistry", "Med.": "medicine", "Anat.": "anatomy",
    "Naut.": "seafaring", "Min.": "mineralogy", "Biol.": "biology", "Mus.": "music", "Arch.": "architecture",
    "Mil.": "military", "Physiol.": "physiology", "Math.": "mathematics", "Astron.": "astronomy", "Geol.": "geology",
    "Mach.": "machinery", "Geom.": "geometry", "Her.": "heraldry", "Elec.": "electricity", "Gram.": "grammar",
    "Eccl.": "church", "Mech.": "mechanics", "Paleon.": "fossils", "Surg.": "surgery", "Print.": "printing",
    "Ethnol.": "peoples", "Fort.": "fortification", "Com.": "commerce", "Rhet.": "rhetoric", "Theol.": "theology",
    "Metal.": "metallurgy", "Opt.": "optics", "Far.": "horse keeping", "Crystallog.": "crystals", "Carp.": "carpentry",
    "Photog.": "photography", "Metaph.": "metaphysics", "Script.": "scripture", "Paint.": "painting",
    "Pros.": "verse", "Alg.": "algebra", "Gun.": "gunnery", "Engin.": "engineering", "Agric.": "farming",
    "Phon.": "phonetics", "Astrol.": "astrology", "Hort.": "gardening", "Geog.": "geography", "Meteor.": "weather",
    "Arith.": "arithmetic", "Philos.": "philosophy", "Myth.": "myth", "Man.": "horse riding", "Antiq.": "antiquity",
    "Pharm.": "pharmacy", "Surv.": "surveying", "Law": "law", "Physics": "physics", "Logic": "logic",
    "Mining": "mining", "Railroad": "railways", "Railroads": "railways", "Steam Engine": "steam engines",
    "Cookery": "cookery", "Weaving": "weaving", "Founding": "founding", "Golf": "golf", "Music": "music",
    "Shipbuilding": "shipbuilding", "Fine Arts": "fine arts", "R. C. Ch.": "Catholic church", "Eng. Law": "English law",
    "O. Eng. Law": "old English law", "Scots Law": "Scots law", "Rom. Antiq.": "Roman antiquity",
    "Gr. Antiq.": "Greek antiquity", "Class. Myth.": "myth", "Physiol. Chem.": "chemistry of life",
    "Card Playing": "card games", "Baseball": "baseball", "Masonry": "masonry", "Eccl. Hist.": "church history",
    "Old Chem.": "old chemistry", "Football": "football", "Cricket": "cricket", "Optics": "optics",
    "Phonetics": "phonetics", "Falconry": "falconry", "Finance": "finance", "Aeronautics": "flying",
    "Geography": "geography", "Phys. Geog.": "geography", "Firearms": "firearms", "Printing": "printing",
    "Eng. Hist.": "English history", "Computers": "computers", "Stock Exchange": "stock exchange",
    "Anc. Armor": "armour", "Billiards": "billiards",
}  # fmt: skip
"""What the large dictionary writes before a definition, and what we call it."""


def _content(cache: Cache, name: str, member: str) -> str:
    package = cache.package("apt", name)
    content = gzip.decompress(package.read(f"usr/share/dictd/{member}.dict.dz")).decode(errors="replace")
    package.close()
    return content


def fields_of_words(content: str) -> Found:
    """Definitions of the large dictionary behind a field in parentheses, as far as the next sense or remark."""
    found: Found = {}
    flat = re.sub(r"\s+", " ", content)
    for match in re.finditer(r"\(([A-Z][A-Za-z. &]+)\),? ", flat):
        field = FIELDS.get(match[1])
        if field is None:
            continue
        after = re.split(r" \[| --|\(| [2-9]\. |; as,| See \{| Note:", flat[match.end() : match.end() + 600])[0]
        found.setdefault(field, []).append(re.sub(r"[{}]", "", after).strip(" ,;:."))
    return found


def subjects_of_terms(content: str) -> Found:
    """First paragraphs of the computing dictionary by the first subject that they name."""
    found: Found = {}
    for match in re.finditer(r"^ +<([a-z ]+)(?:,[a-z, ]+)?>\s(.+?)\n\n", content, flags=re.MULTILINE | re.DOTALL):
        found.setdefault(match[1], []).append(re.sub(r"[{}]", "", match[2]))
    return found


def dictionary_domains(cache: Cache) -> Iterator[Domain]:
    """A large old dictionary by field, and one of computing by subject."""
    fields = choose(fields_of_words(_content(cache, "dict-gcide", "gcide")))
    yield Domain("fields", "Definitions of an old dictionary by field", "id", fields, ("dict-gcide",))
    subjects = choose(subjects_of_terms(_content(cache, "dict-foldoc", "foldoc")))
    yield Domain("computing", "Terms of computing by subject", "ood", subjects, ("dict-foldoc",))
