"""The embedded environment's past: history and events in Parquet segments, read by DuckDB."""
