"""An experiment as one typed value, and as a TOML file."""
