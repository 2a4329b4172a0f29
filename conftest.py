"""What holds for all tests, wherever they are."""

pytest_plugins = ["needs", "tiers"]
