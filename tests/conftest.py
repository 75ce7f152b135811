"""Hypothesis draws the same examples every time, so that a test that passes once passes again.

HYPOTHESIS_PROFILE=explore draws new ones.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
