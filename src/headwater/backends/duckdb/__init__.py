"""The embedded history: values and events in Parquet segments, read by DuckDB."""
