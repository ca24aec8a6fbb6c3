"""Everything Smatter raises on purpose.

Each error says in one line what is wrong, where, and what to do about it. Each also inherits the built-in
that a caller who knows nothing of Smatter would catch.
"""


class SmatterError(Exception):
    """A mistake the user can mend; its text is the remedy."""


class InvalidWeights(SmatterError, ValueError):
    """Mixture weights off the simplex, not finite, or of the wrong shape."""


class InvalidResidual(SmatterError, ValueError):
    """A residual whose indices or values do not fit the network."""


class InvalidRecipe(SmatterError, ValueError):
    """A recipe file that cannot be read, or does not fit the library at hand."""


class InvalidManifest(SmatterError, ValueError):
    """A library.json that cannot be read."""


class UnsafeFile(SmatterError, ValueError):
    """A checkpoint file that is damaged, or that asks for something a reader must refuse."""


class UnknownSource(SmatterError, LookupError):
    """A name or a digest that no source of the library has."""


class UnknownModule(SmatterError, LookupError):
    """A module or tensor name that the library's partition does not have."""


class IncompatibleSource(SmatterError, ValueError):
    """A checkpoint whose mixture with the base would be meaningless."""


class SourceChanged(SmatterError, ValueError):
    """A file that is no longer what was added to the library."""


class NotFound(SmatterError, FileNotFoundError):
    """A folder or file that is not where it should be."""


class AlreadyExists(SmatterError, FileExistsError):
    """An output that would overwrite something."""


class CannotWrite(SmatterError, OSError):
    """The disk or its permissions refuse; nothing was changed."""


class MissingExtra(SmatterError, ImportError):
    """An optional dependency that a request needs; the text is the pip line."""


class InvalidSupport(SmatterError, ValueError):
    """Labelled examples that cannot be read, or from which nothing can be learnt."""


class InvalidScores(SmatterError, ValueError):
    """Numbers that cannot be scored: not finite, not in pairs, or a share outside its range."""


class InvalidSuite(SmatterError, ValueError):
    """A suite or a list of tasks that cannot be read, or from which the tasks asked for cannot be drawn."""


class InvalidProfile(SmatterError, ValueError):
    """A profile that cannot be read, or is of another device, setting or network."""


class InvalidRouter(SmatterError, ValueError):
    """A router that cannot be read, or does not fit the library at hand."""


class InvalidCertificate(SmatterError, ValueError):
    """Numbers of which no bound can be made: losses outside [0, 1], too few tasks, or a delta outside (0, 1)."""


class InvalidSettings(SmatterError, ValueError):
    """Settings of an adaptation that contradict each other or the library."""


class BudgetInfeasible(SmatterError, ValueError):
    """A limit on cost or time that nothing can meet."""


class SmatterWarning(UserWarning):
    """A result that stands, but that should be read with care."""
