"""Tools for developers of Headwater."""
