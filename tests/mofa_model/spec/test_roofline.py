"""A roofline changes what kernels reach, and nothing else of a calibration."""

from dataclasses import replace

import pytest

from mofa_model.spec import Calibration
from mofa_model.spec.calibration import Roofline, under


@pytest.mark.parametrize("roofline", Roofline)
def test_all_but_kernels_stay(roofline):
    given = Calibration(stack="any", placement="slots")
    found = under(roofline, given)
    assert replace(found, compute=given.compute) == given
    assert (found == given) is (roofline is Roofline.SHAPED)
