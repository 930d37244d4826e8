"""What users touch: the forms of call. Each is a thin front on the same drivers."""
