"""The gateways of this database: the link to them, and what they report of their loads."""
