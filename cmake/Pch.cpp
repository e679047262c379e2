// Compiles nothing: its object library owns the precompiled header.
