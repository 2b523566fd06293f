"""What the page about spaces says is so: its example loads, its names are the code's."""

import re
import textwrap
from pathlib import Path

from search_spaces import builtin_folder, load_space
from search_spaces.context import NAMES
from search_spaces.grammar import FUNCTIONS

PAGE = (builtin_folder().parent / "README.md").read_text()


def test_the_example_is_a_space(tmp_path: Path):
    start = PAGE.index("    family: cpu")
    path = tmp_path / "mine.yaml"
    path.write_text(textwrap.dedent(PAGE[start : PAGE.index("\n\n", start)]))
    space = load_space(path)
    assert space.parameters["block_m"] == (2, 4, 6, 8)
    assert space.size() == 2 * 2 * 4 * 3 * 2 * 2
    assert space.prune({"m": 7}).rejected == {
        "stream would read the weights more than three times": 48 // 2
    }


def test_the_table_of_names_is_the_code_s():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert rows == {name: entry.meaning for name, entry in NAMES.items()}
    assert all(f"`{function}(a, b" in PAGE for function in FUNCTIONS)
