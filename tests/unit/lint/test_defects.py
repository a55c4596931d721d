# SPDX-License-Identifier: Apache-2.0
"""The list of defects that tests must find is of the tree as it is."""

from __future__ import annotations

import pytest
from defects import DEFECTS, ROOT, Defect


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.what)
def test_what_a_defect_changes_is_there_once(defect: Defect) -> None:
    text = (ROOT / defect.file).read_text()
    assert text.count(defect.right) == 1
    assert all((ROOT / test.partition("::")[0]).exists() for test in defect.tests)
