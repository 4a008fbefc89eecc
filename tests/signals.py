"""SIGINT in a child of a test: a shell that runs tests with `&` in a script ignores it, and every
child inherits that.
"""

HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Beginning of a script that is to be interrupted, whoever started the tests."""
BACKGROUND = ("bash", "-c", "trap '' INT; exec \"$@\"", "-")
"""Before a command: it begins as a shell's background process does."""
