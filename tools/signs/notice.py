"""Who made what Signs is made of, and on which terms it may be passed on."""

from collections.abc import Mapping
from typing import Any

SHARE_ALIKE = "CC-BY-SA"
LEAD = """Signs is made of fonts, drawings and pictures of the packages below, each under its own licence. They were
rendered at 32 x 32 pixels, reduced in colours and put on sheets; nothing else was changed.

The sheets of these domains hold art under CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/) and may be
passed on under that licence: {share_alike}.
CC BY 4.0 is at https://creativecommons.org/licenses/by/4.0/, the other licences at https://spdx.org/licenses/.
"""


def notice(table: Mapping[str, Any]) -> str:
    """The text of NOTICE, from the contents of suite.json."""
    packages = table["packages"]
    shared = {use for package in packages if SHARE_ALIKE in package["licence"] for use in package["use"].split(", ")}
    lines = [f"{each['name']} {each['version']} ({each['registry']}): {each['licence']}" for each in packages]
    return LEAD.format(share_alike=", ".join(sorted(shared))) + "\n" + "\n".join(lines) + "\n"
