"""Options that several commands share: each has one meaning and one help text. No commands here."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str | None, typer.Option("--model", help="A config.json, or a folder that holds one.")
]
Tp = Annotated[int, typer.Option(help="Tensor-parallel size.")]
Tokens = Annotated[str, typer.Option("--m", help="Token counts to tune for.")]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu or cuda:0.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--db", help="Database URL or SQLite path [HUMMING_DB, else the user's data folder]."
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Quantize the model's 16-bit linear layers so.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
