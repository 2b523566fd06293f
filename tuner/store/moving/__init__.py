"""Evidence on the move: rows as plain JSON, bundles of them, and their union with a database. What
rows mean is the store's; which commands use this is tuner/commands/moving.py."""
