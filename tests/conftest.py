"""What all tests share: calm Hypothesis settings for a machine whose speed is not ours to know."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("thorough", parent=settings.get_profile("calm"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "calm"))
