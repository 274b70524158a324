"""Arguments and help of commands; what a command does is in ``cli.commands``."""
