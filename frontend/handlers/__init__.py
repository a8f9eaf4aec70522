"""What calling a particular builtin, class or torch function means to the tracer, beyond inlining it: see README.md."""
