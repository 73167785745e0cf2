"""What is computed before the first step: columns, preconditioners, penalty and scaling."""
