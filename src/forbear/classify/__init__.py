"""What a failure means: read off any library's errors by attribute, header and class, importing none of them.

Pure: no clock, no randomness, no network, no import of an SDK.
"""
