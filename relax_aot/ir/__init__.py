"""What a program is: sizes, types, graph level, loop level."""
