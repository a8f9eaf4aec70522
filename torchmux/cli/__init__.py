"""The command line: parses words, asks the public functions, prints what they answer.  It decides nothing itself."""
