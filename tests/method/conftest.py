"""Property tests are about what holds, not about how fast: hypothesis' time limit is off."""

from hypothesis import settings

settings.register_profile("no_time_limit", deadline=None)
settings.load_profile("no_time_limit")
