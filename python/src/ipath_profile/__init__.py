"""Reader of the profiles that ipath writes (``ipath-profile/1``).

:func:`load` returns a :class:`Profile`. Its tables are pandas DataFrames.
"""

from .compare import diff
from .profile import Frame, Profile, ProfileError, load
from .tree import Node

__all__ = ["Frame", "Node", "Profile", "ProfileError", "diff", "load"]
