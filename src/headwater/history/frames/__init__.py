"""The kinds of tables that point-in-time reads take and return."""
