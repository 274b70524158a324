"""What each command does; its arguments and help are in ``cli.arguments``."""
