"""Tuning by many: problems shared by leases, members on all devices of a host or a Ray cluster. No
search and no SQL here."""
