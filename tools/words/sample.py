"""A few kilobytes of Words for tests: python tools/words/sample.py SUITE -o FOLDER.

Glosses of WordNet alone, whose licence lets them be passed on with the notice that is put beside them.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from smatter.files.writing import write_file
from smatter.tasks.open import open_suite
from smatter.tasks.packed import write_packed
from smatter.tasks.stores import Texts
from smatter.tasks.suite import Domain, Suite, SuiteClass

DOMAINS = ("life", "actions", "matter")
N_CLASSES, N_EXAMPLES = 12, 8
NOTICE = """These texts are glosses of WordNet 3.0, chosen and sorted by concept; see https://wordnet.princeton.edu.

This software and database is being provided to you, the LICENSEE, by Princeton University under the
following license. By obtaining, using and/or copying this software and database, you agree that you
have read, understood, and will comply with these terms and conditions.:

Permission to use, copy, modify and distribute this software and database and its documentation for any
purpose and without fee or royalty is hereby granted, provided that you agree to comply with the
following copyright notice and statements, including the disclaimer, and that the same appear on ALL
copies of the software, database and documentation, including modifications that you make for internal
use or for distribution.

WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved.

THIS SOFTWARE AND DATABASE IS PROVIDED "AS IS" AND PRINCETON UNIVERSITY MAKES NO REPRESENTATIONS OR
WARRANTIES, EXPRESS OR IMPLIED. BY WAY OF EXAMPLE, BUT NOT LIMITATION, PRINCETON UNIVERSITY MAKES NO
REPRESENTATIONS OR WARRANTIES OF MERCHANTABILITY OR FITNESS FOR ANY PARTICULAR PURPOSE OR THAT THE USE
OF THE LICENSED SOFTWARE, DATABASE OR DOCUMENTATION WILL NOT INFRINGE ANY THIRD PARTY PATENTS,
COPYRIGHTS, TRADEMARKS OR OTHER RIGHTS.

The name of Princeton University or Princeton may not be used in advertising or publicity pertaining to
distribution of the software and/or database. Title to copyright in this software, database and any
associated documentation shall at all times remain with Princeton University and LICENSEE agrees to
preserve same.
"""


def few(domain: Domain) -> Domain:
    """The first classes of a domain, with the first texts of each."""
    classes = [each for each in domain.classes if len(each) >= N_EXAMPLES][:N_CLASSES]
    texts = [text for each in classes for text in domain.store.take(range(each.start, each.start + N_EXAMPLES))]
    numbered = (
        SuiteClass(each.name, each.key, i * N_EXAMPLES, (i + 1) * N_EXAMPLES) for i, each in enumerate(classes)
    )  # fmt: skip
    return replace(domain, classes=tuple(numbered), store=Texts([str(text) for text in texts]))


def sample(suite: Suite) -> Suite:
    """Some domains, and the package that they are from."""
    domains = tuple(few(suite.domain(name)) for name in DOMAINS)
    used = {name for domain in domains for name in domain.packages}
    packages = tuple(each | {"use": ", ".join(DOMAINS)} for each in suite.packages if each["name"] in used)
    return replace(suite, name="words-sample", domains=domains, packages=packages)


def main() -> None:
    """Read, choose, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="folder that build.py wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the sample; an older one is replaced")
    options = parser.parse_args()
    write_packed(options.out, sample(open_suite(options.suite)), replace=True)
    write_file(options.out / "NOTICE", NOTICE.encode())


if __name__ == "__main__":
    main()
