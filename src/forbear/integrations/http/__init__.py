"""What the integrations of HTTP libraries share; no library is known here."""
