"""The database: SQLite and PostgreSQL, transactions, leases, and bringing tables up to date."""
