"""Surfaces of other libraries, for people who come from them: change the import line, and the program runs.

Decided here: nothing. Each package in here is named after the library whose names it has.
"""
