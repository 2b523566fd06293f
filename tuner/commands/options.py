"""Options of commands: each has one meaning and one help text. No commands here."""

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
Unfused = Annotated[
    bool,
    typer.Option("--unfused", help="Layers of the model's own modules, as humming.convert makes."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

Duration = Annotated[
    str | None,
    typer.Option("--budget", help="Time in all, from process start, such as 60s or 10m."),
]
Routing = Annotated[
    str,
    typer.Option(
        "--routing", help="How tokens fall on experts: uniform, zipf1.2, or a recorded file."
    ),
]
BatchInvariant = Annotated[
    bool, typer.Option("--batch-invariant", help="Tune for humming.set_batch_invariant(True).")
]
Resume = Annotated[bool, typer.Option("--continue", help="Search on where a problem is settled.")]
Fleet = Annotated[bool, typer.Option("--fleet", help="Tune on all GPUs of this host at once.")]
Ray = Annotated[str | None, typer.Option("--ray", help="Tune on the devices of a Ray cluster.")]
FromMisses = Annotated[
    bool, typer.Option("--from-misses", help="Tune what serving processes missed most.")
]
Version = Annotated[bool, typer.Option("--version", help="Print the version.")]
