//! A disk of our choosing.
