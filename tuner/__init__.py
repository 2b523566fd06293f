"""The autotuner: from a model's config.json to proven kernel configs in a database and a tuned
table.
"""
