import subprocess
import sys

import pytest

import topotune.links


@pytest.mark.parametrize(
    "module", ["topotune.links", "topotune.bounds", "topotune.links.fit", "topotune.links.rounds"]
)
def test_what_is_pure_does_not_import_torch(module):
    code = f"import {module}, sys; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_is_there():
    for name in topotune.links.__all__:
        assert getattr(topotune.links, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = topotune.links.nonsense
