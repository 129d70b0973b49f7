//! Placement streams and victim selection, pure.
