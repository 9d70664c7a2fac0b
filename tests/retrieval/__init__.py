"""Contexts and retrievers: declared, assembled, fresh and recorded."""
