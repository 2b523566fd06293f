"""Comparisons with peers, each a command. Figures are in results/, with where they came from."""
