"""History: point-in-time reads, versions of features, backfill, import, export and retention."""
