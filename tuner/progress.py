"""What the user sees while tuning runs: a live line on a terminal, nothing elsewhere. Results are
report.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from humming.spec.config import KernelConfig
from humming.spec.naming import counted
from tuner.planning.tasks import Task


class Watch:
    """A progress display on standard error where that is a terminal and `quiet` is off; notes are
    printed in any case."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._row = self._bar.add_task("tuning", total=1)
        self._where, self._trials, self._best = "", 0, float("inf")
        self._started = False
        self._said: set[str] = set()

    @contextmanager
    def running(self, problems: int, settled: int) -> Iterator[None]:
        """Show the display for as long as tuning runs."""
        self._bar.update(self._row, total=problems, completed=settled)
        with self._bar:
            yield

    def problem(self, task: Task) -> None:
        """A problem begins."""
        if self._started:
            self._bar.advance(self._row)
        self._started = True
        problem = task.problem
        self._where = f"{task.group.layers[0]} n={problem.n} k={problem.k} m={problem.m}"
        self._trials, self._best = 0, float("inf")
        self._show("")

    def reached(self, settled: int) -> None:
        """So many problems are settled, by others."""
        self._bar.update(self._row, completed=settled)

    def trial(self, config: KernelConfig, outcome: str, us: float | None) -> None:
        """A trial ended."""
        self._trials += 1
        if us is not None and us < self._best:
            self._best = us
        self._show(f"  {config}: {outcome if us is None else f'{us:.0f} µs'}")

    def note(self, text: str) -> None:
        """Something that the user should know, kept on the screen."""
        self._console.print(text, highlight=False)

    def note_once(self, text: str) -> None:
        """As `note`, but what was said already is not said again."""
        if text not in self._said:
            self._said.add(text)
            self.note(text)

    def _show(self, last: str) -> None:
        best = f", best {self._best:.0f} µs" if self._trials and self._best < float("inf") else ""
        trials = counted(self._trials, "trial")
        self._bar.update(self._row, description=f"{self._where}: {trials}{best}{last}")
