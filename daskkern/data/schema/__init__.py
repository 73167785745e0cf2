"""What a store holds: attributes, columns, encodings and scalings."""
