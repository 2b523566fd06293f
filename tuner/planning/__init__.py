"""What will be tuned, and for how long: problems of a workload, their shares of a budget, and how
long others took. Nothing runs here."""
