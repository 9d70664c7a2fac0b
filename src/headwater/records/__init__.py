"""CRS-001 records: the provenance of a context, as bytes that can be verified, redacted and signed.

``core`` declares the fields, ``sealing`` makes the bytes, ``signing`` signs them, ``verify`` checks
them, ``redaction`` erases values, ``document`` exports a record as JSON, ``projection`` turns it
into a context, and ``diff`` compares two records.
"""
