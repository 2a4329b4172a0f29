"""What holds for all tests, wherever they are."""

pytest_plugins = ["in_memory", "needs", "tiers"]
