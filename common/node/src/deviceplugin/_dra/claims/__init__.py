"""Claims: what a claim gets, how that is prepared, and what is recorded of it."""
