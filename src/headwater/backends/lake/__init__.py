"""History and events in Iceberg tables, which other engines can read without us."""
