"""The command line: parses arguments, calls the public functions and prints their answers.  It has no other logic."""
