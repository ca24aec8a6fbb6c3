"""One-line descriptions of Debian packages: a class is a section of the archive.

They are no package themselves: the list of what the archive holds is asked of apt, and named by its digest.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterator

from passages import Domain, Found, choose

NAMES = {
    "math": "mathematics", "doc": "documentation", "comm": "communication", "otherosfs": "other systems",
    "vcs": "version control", "hamradio": "amateur radio", "tex": "typesetting", "httpd": "web servers",
}  # fmt: skip
NO_SUBJECT = frozenset(["debian-installer", "libs", "libdevel", "misc", "oldlibs", "debug", "metapackages", "tasks"])
LIST = "package descriptions"


def sections(content: str) -> Found:
    """Descriptions by section; of several packages of one source only the first, as the others say nearly the same."""
    found: Found = {}
    seen = set()
    for stanza in content.split("\n\n"):
        values = dict(re.findall(r"^(Package|Source|Section|Description): (.+)$", stanza, flags=re.MULTILINE))
        if not {"Package", "Section", "Description"} <= values.keys():
            continue
        section = values["Section"].rpartition("/")[2]
        source = values.get("Source", values["Package"]).split()[0], section
        if section in NO_SUBJECT or source in seen:
            continue
        seen.add(source)
        found.setdefault(NAMES.get(section, section), []).append(re.sub(r" *\(.*?\)| - .*$", "", values["Description"]))
    return found


def archive() -> str:
    """What apt knows of the archive."""
    content = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    if not content.strip():
        raise SystemExit("apt has no list of packages: run `apt update` first")
    return content


def package_domains(content: str) -> Iterator[Domain]:
    """One domain."""
    yield Domain("packages", "Descriptions of packages by section", "id", choose(sections(content)), (LIST,))


def version_of(content: str) -> str:
    """Tells one state of the archive from another."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]
