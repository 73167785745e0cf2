"""What the command line says of itself, and refuses, before it imports anything that computes."""
