import pytest
from launched import Started


@pytest.fixture
def started():
    processes = Started()
    yield processes
    processes.kill()
