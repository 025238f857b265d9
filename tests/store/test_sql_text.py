"""SQL's quotes and comments: where a statement ends, and which arrows are operators."""

from __future__ import annotations

import pytest

from seeklog.store.sql_text import is_complete, is_empty, on_one_line, with_duckdb_arrows, with_our_arrows


@pytest.mark.parametrize(
    ("query", "ours"),
    [
        ("v->'a'", "v ~> 'a'"),
        ("v->>'a'", "v ~>> 'a'"),
        ("v -> 0", "v  ~>  0"),
        ("v->-1", "v ~> -1"),
        ("v -> /* c */ 'a'", "v  ~>  /* c */ 'a'"),
        ("v->>path", "v ~>> path"),
        ("v -> path", "v -> path"),
        ("list_transform(l, x -> x + 1)", "list_transform(l, x -> x + 1)"),
        ("'x->''a'''", "'x->''a'''"),
        ("\"x->'a'\"", "\"x->'a'\""),
        ("e'it\\'s ->' || 'a'", "e'it\\'s ->' || 'a'"),
        ("$$ -> 'a' $$", "$$ -> 'a' $$"),
        ("$q$ $$ -> 'a' $q$", "$q$ $$ -> 'a' $q$"),
        ("1 -- -> 'a'\n", "1 -- -> 'a'\n"),
        ("/* v ->> 'a' */", "/* v ->> 'a' */"),
        ("v->'ü'", "v ~> 'ü'"),
        ("v->'open", "v->'open"),
    ],
)
def test_arrows_outside_of_quotes_become_our_operators(query: str, ours: str) -> None:
    assert with_our_arrows(query) == ours
    assert with_duckdb_arrows(ours).replace(" ", "") == query.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "is_done"),
    [
        ("select 1;", True),
        ("select 1 ; -- done", True),
        ("select 1; /* done */ ", True),
        ("select $$;$$;", True),
        ("select 1", False),
        ("select ';", False),
        ('select ";', False),
        ("select 1 /* ;", False),
        ("select $$ ;", False),
        ("select 1 -- ;", False),
        ("", False),
    ],
)
def test_statement_ends_with_a_semicolon_outside_of_quotes(text: str, is_done: bool) -> None:
    assert is_complete(text) == is_done


def test_text_without_a_statement_is_empty() -> None:
    assert all(map(is_empty, ("", " \n", ";;", "-- nothing", "/* nothing */ ;")))
    assert not any(map(is_empty, ("select", "'", ".help")))


def test_history_keeps_a_statement_on_one_line() -> None:
    assert on_one_line("select 'a  b', -- why\n  1 /* c */;\n") == "select 'a  b',   1  ;"
