"""Arrays of NumPy or CuPy, threads, random numbers, sums in a fixed order, and communicators between ranks."""
