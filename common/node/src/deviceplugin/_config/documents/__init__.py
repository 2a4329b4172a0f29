"""Documents in YAML, JSON and TOML: each value with its line, and all faults, collected."""
