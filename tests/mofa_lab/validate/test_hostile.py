"""Whatever a case file holds, each case is priced or refused with a reason, and no number
is NaN.
"""

import copy
import json
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mofa_lab.validate.steps import validate_steps

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1e300, 10**40, 3, 7, 1e-300]),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def paths(value, here=()):
    for name, inner in value.items():
        yield (*here, name)
        if isinstance(inner, dict):
            yield from paths(inner, (*here, name))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(data=st.data())
def test_a_case_with_any_field_spoiled_is_priced_or_refused(plain, tmp_path, data):
    case = copy.deepcopy(plain)
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(list(paths(plain))))
        inner = case
        for name in way:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[last] = data.draw(ODD)
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([case, plain]))
    document = validate_steps([path])
    assert all(
        math.isfinite(row["predicted"]) and math.isfinite(row["error"]) for row in document["cases"]
    )
    assert all(item["reason"] and "\n" not in item["reason"] for item in document["unsupported"])
    assert any(row["id"] == "plain" for row in document["cases"])
