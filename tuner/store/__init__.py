"""The tuning database: `tuner.store.open.open_store(url)` gives a Store; its verbs speak in
records.py.
"""
