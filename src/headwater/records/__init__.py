"""CRS-001: what a context was made of, as bytes that can be proved, withheld, redacted and signed.

``core`` says what is recorded, ``sealing`` makes the bytes, ``signing`` signs them, ``verify``
says what still holds, ``redact`` erases, ``document`` carries a record elsewhere.
"""
