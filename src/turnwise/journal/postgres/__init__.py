"""The journal on PostgreSQL. Imported only where an address of a database is given; needs `turnwise[postgres]`."""
