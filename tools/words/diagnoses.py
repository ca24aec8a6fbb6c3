"""Diagnoses of ICD-10-CM: a class is a block of them."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from download import Cache
from passages import Domain, Found, choose

PACKAGE = "simple-icd-10-cm"


def blocks(content: bytes) -> Found:
    """Descriptions of categories and of their first parts, by block; finer ones differ in a side or a visit."""
    found: Found = {}
    for section in ElementTree.fromstring(content).iter("section"):
        name = re.sub(r" *\([A-Z0-9-]+\)$", "", section.findtext("desc", ""))
        for category in section.findall("diag"):
            for each in (category, *category.findall("diag")):
                found.setdefault(name, []).append(each.findtext("desc", ""))
    return found


def diagnosis_domains(cache: Cache) -> Iterator[Domain]:
    """One domain."""
    package = cache.package("pypi", PACKAGE)
    member = next(name for name in package if re.search(r"/icd10c-tabular.*\.xml$", name))
    found = blocks(package.read(member))
    yield Domain("diagnoses", "Diagnoses by block of the classification", "ood", choose(found), (PACKAGE,))
