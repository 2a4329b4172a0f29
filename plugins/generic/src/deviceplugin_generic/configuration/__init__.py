"""The configuration: its grammar, and its entries after they were read and checked."""
