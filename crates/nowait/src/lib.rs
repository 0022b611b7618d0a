//! File I/O on Linux that does not make you wait.
