"""A process that tunes: begins and finishes one trial after another, saying which are finished. Run
by tests, and killed.

Usage: store_writer.py URL FIRST END; trials are the m of [FIRST, END) that the database lacks.
"""

from __future__ import annotations

import sys

from store_samples import CONFIG, HERE, PROBLEM, draft

from tuner.store.open import open_store


def main(url: str, first: int, end: int) -> None:
    """Prints `ready`, then the m and id of each trial once `finish` has returned."""
    with open_store(url) as store:
        done = {m.problem.m for m in store.measurements(HERE)}
        print("ready", flush=True)
        for m in range(first, end):
            if m not in done:
                problem = PROBLEM.at(m)
                ticket = store.begin(HERE, problem, CONFIG)
                print(m, store.finish(ticket, draft(problem=problem)).id, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
