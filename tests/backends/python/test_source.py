"""What of a python model's file is found without running it, and what is left alone."""

import pytest

from backends.python.source import problems

GOOD = "class TritonPythonModel:\n    def execute(self, requests): ...\n"


def there(name: str) -> bool:
    return name in ("os", "numpy", "beside")


def said(source: str) -> list[str]:
    return [f"{one.line}: {one.message}" for one in problems("model.py", source.encode(), there)]


@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        "import triton_python_backend_utils as pb_utils\nimport numpy as np, os.path\n" + GOOD,
        "from beside import x\nfrom . import y\n" + GOOD,
        "try:\n    import nowhere\nexcept ImportError:\n    pass\n" + GOOD,
        "def late():\n    import nowhere\n" + GOOD,
        "import sys\nsys.path.append('lib')\nimport nowhere\n" + GOOD,
        "from beside import *\n",
        "from beside import Model as TritonPythonModel\n",
        "TritonPythonModel = type('M', (), {})\n",
        "class Base:\n    def execute(self, r): ...\nclass TritonPythonModel(Base):\n    pass\n",
        "class TritonPythonModel:\n    async def execute(self, requests): ...\n",
    ],
)
def test_what_may_work_is_left_alone(source: str) -> None:
    assert said(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = (\n" + GOOD, "1: model.py is no valid Python: '(' was never closed"),
        ("\0", "0: model.py is no valid Python: "),
        ("class Other: pass\n", "0: model.py has no class TritonPythonModel"),
        ("class TritonPythonModel:\n    pass\n", "1: class TritonPythonModel has no method exec"),
        ("import os\nimport nowhere.deep\n" + GOOD, "2: imports nowhere.deep, and there is no"),
        ("from nowhere import a\nfrom nowhere import b\n" + GOOD, "1: imports nowhere, and"),
        ("import os.path\nos.path.join('a')\nimport nowhere\n" + GOOD, "3: imports nowhere, and"),
    ],
)
def test_what_cannot_work_is_named_once(source: str, expected: str) -> None:
    (one,) = said(source)
    assert one.startswith(expected)
