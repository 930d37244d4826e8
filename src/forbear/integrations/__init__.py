"""forbear inside the libraries of others: one module per partner, and none is loaded before it is needed."""

from forbear.integrations.owner import sole_owner as sole_owner
