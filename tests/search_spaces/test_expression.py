"""Laws of the constraint language: it means what Python means and refuses the rest."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.errors import SpaceError
from search_spaces.expression import INT_MAX, NUMBER, TEXT
from search_spaces.grammar import MAX_DEPTH, parse

KINDS = {"block_m": NUMBER, "m": NUMBER, "threads": NUMBER, "code_path": TEXT}
NUMBERS = ("block_m", "m", "threads")


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


PYTHON = {"__builtins__": {}, "min": min, "max": max, "ceil_div": _ceil_div}


_LEAVES = ("0", "1", "7", "100", *NUMBERS)
_TEXTS = ("code_path", "'avx2'", '"avx512"')
_SHAPES = (
    *(
        f"{{}} {op} {{}}"
        for op in ["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    ),
    "{} < {} <= {} != {}",
    "{} + {} * {} - {} // {}",
    "not {} and {} or - {} % {}",
    "{} in [{}, {}]",
    "{} not in [{}, {}, {}]",
    "min({}, {}, {})",
    "max({}, ceil_div({}, {}))",
)


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.integers(0, 5 if depth else 1))
    if kind == 0:
        left, right = draw(st.sampled_from(_TEXTS)), draw(st.sampled_from(_TEXTS))
        return f"({left} {draw(st.sampled_from(('==', '!=')))} {right})"
    if kind == 1:
        return draw(st.sampled_from(_LEAVES))
    shape = draw(st.sampled_from(_SHAPES))
    parts = [draw(_expressions(depth - 1)) for _ in range(shape.count("{}"))]
    text = shape.format(*parts)
    return text if depth == 3 else f"({text})"


_values = st.fixed_dictionaries(
    {name: st.integers(-5, 40) for name in NUMBERS}
    | {"code_path": st.sampled_from(["generic", "avx2", "avx512"])}
)


@given(_expressions(), _values)
def test_an_expression_is_worth_what_python_says(text, values):
    try:
        expression = parse(text, KINDS)
    except SpaceError as error:
        assert "at most" in str(error)  # too long or too deep: the only ways to refuse these
        return
    try:
        expected = eval(text, PYTHON, values)
    except ZeroDivisionError:
        with pytest.raises(SpaceError, match="division by zero"):
            expression.evaluate(values)
        return
    try:
        got = expression.evaluate(values)
    except SpaceError as error:
        assert "64 bits" in str(error)
        return
    assert got == expected
    assert pickle.loads(pickle.dumps(expression)) == expression


@given(st.text(max_size=80) | st.text("mab_n12 +-*/%()[]<>=!'\",.andorti\n", max_size=80))
def test_any_text_parses_or_is_refused_with_a_sentence(text):
    try:
        expression = parse(text, KINDS)
    except SpaceError as error:
        assert str(error)
    else:
        assert set(expression.names) <= set(KINDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("block_n <= 4", "unknown name 'block_n'; did you mean 'block_m'?"),
        ("cel_div(m, 2) < 3", "unknown function 'cel_div'; did you mean 'ceil_div'?"),
        ("m ** 9999999", "unexpected '**'; powers are refused"),
        ("m / 2 < 1", "unexpected '/'; write `//`, division that rounds down"),
        ("m = 2", "unexpected '='; write `==`"),
        ("m < 2 && m > 1", "unexpected '&&'; write `and`"),
        ("m.real", "unexpected '.'"),
        ("__import__('os')", "unknown function '__import__'"),
        ("(lambda: 1)()", "unknown name 'lambda'"),
        ("m if m else 1", "unexpected 'if'"),
        ("[m][0]", "unexpected '['"),
        ("m in (1, 2)", "unexpected '('"),
        ("1 < m in [1, 2]", "join them by `and`"),
        ("m <", "the expression ends too early"),
        ("", "the expression ends too early"),
        ("1.5 < m", "unexpected '1.5'"),
        ("0x10 < m", "unexpected '0x10'"),
        ("007 < m", "no leading zero"),
        ("m < 99999999999999999999", "an integer is at most 2**63 - 1"),
        ("code_path < 'b'", "texts are compared by ==, != and in"),
        ("code_path == 2", "compares like with like, but got a text and a number"),
        ("m in [1, 'avx2']", "compares like with like, but got a number and a text"),
        ("code_path * 9999", "each side of `*` must be a number or a comparison"),
        ("code_path", "the whole expression must be a number or a comparison"),
        ("min(m)", "min takes two numbers or more, but got 1"),
        ("ceil_div(m, 2, 3)", "ceil_div takes two numbers, but got 3"),
        ("(" * 50 + "m" + ")" * 50, f"nests at most {MAX_DEPTH} deep"),
        ("not " * 60 + "m", f"nests at most {MAX_DEPTH} deep"),
        ("-" * 100 + "m", f"nests at most {MAX_DEPTH} deep"),
        ("m + " * 120 + "m", "at most 200 words and signs"),
        ("m" * 501, "at most 500 characters"),
    ],
)
def test_what_the_grammar_lacks_is_refused(text, says):
    with pytest.raises(SpaceError) as error:
        parse(text, KINDS)
    assert says in str(error.value)


def test_division_by_zero_names_the_expression_and_the_values():
    with pytest.raises(SpaceError) as error:
        parse("m // (block_m - 2) > 1", KINDS).evaluate({"m": 7, "block_m": 2, "threads": 1})
    assert str(error.value) == (
        "`m // (block_m - 2) > 1`: division by zero in `7 // 0` with m=7, block_m=2"
    )


def test_what_and_or_and_chains_skip_is_not_evaluated():
    values = {"m": 0, "block_m": 1}
    assert not parse("m != 0 and block_m // m > 1", KINDS).evaluate(values)
    assert parse("m == 0 or block_m // m > 1", KINDS).evaluate(values)
    assert not parse("1 < m < block_m // m", KINDS).evaluate(values)


def test_integers_stay_within_64_bits():
    expression = parse("m * m * m > 0", KINDS)
    assert expression.evaluate({"m": 2**20}) is True
    with pytest.raises(SpaceError, match="does not fit into 64 bits"):
        expression.evaluate({"m": INT_MAX})


def test_a_missing_or_mistyped_value_is_named():
    expression = parse("m < 4 and code_path == 'avx2'", KINDS)
    with pytest.raises(SpaceError, match="`m` must be a number, but got None"):
        expression.evaluate({"code_path": "avx2"})
    with pytest.raises(SpaceError, match="`code_path` must be a text, but got 2"):
        expression.evaluate({"m": 1, "code_path": 2})
