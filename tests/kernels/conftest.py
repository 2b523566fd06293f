"""The code paths of this CPU, one test each; what they launch is in kernel_cases.py."""

import pytest
from kernel_cases import code_paths


@pytest.fixture(params=code_paths())
def code_path(request: pytest.FixtureRequest) -> str:
    return request.param
