"""What a fit takes on one rank, as arithmetic: its sizes, the bytes of primitives, and each method's own share."""
