"""People belong to things: ``belongs_to``."""
