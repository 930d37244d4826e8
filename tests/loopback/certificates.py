"""Certificates for the scripted server: one that clients can trust, and one for each way in which trust fails.

They are made when they are asked for, and no key is kept in the project.
"""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import Literal, TypeAlias

import trustme

Flaw: TypeAlias = Literal["none", "self-signed", "unknown-issuer", "expired", "other-name"]


class Authority:
    """Issues the server's certificates. `bundle` is the file to give to clients that shall trust it."""

    def __init__(self, folder: Path) -> None:
        self._issuer = trustme.CA()
        self.bundle = folder / "authority.pem"
        self._issuer.cert_pem.write_to_path(str(self.bundle))

    def context(self, flaw: Flaw = "none") -> ssl.SSLContext:
        """The server's side of TLS. "expired" and "other-name" are met only by clients that trust `bundle`."""
        if flaw in ("self-signed", "unknown-issuer"):
            return untrusted(flaw)
        name = "elsewhere.example" if flaw == "other-name" else "127.0.0.1"
        ends = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) if flaw == "expired" else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._issuer.issue_cert(name, not_after=ends).configure_cert(context)
        return context


def untrusted(flaw: str) -> ssl.SSLContext:
    """The server's side of TLS, "self-signed" or of an "unknown-issuer": nobody trusts it, with or without a bundle."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer = trustme.CA()
    if flaw == "self-signed":
        with issuer.cert_pem.tempfile() as certificate, issuer.private_key_pem.tempfile() as key:
            context.load_cert_chain(certificate, key)
    else:
        issuer.issue_cert("127.0.0.1").configure_cert(context)
    return context
