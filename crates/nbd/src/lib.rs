//! NBD server protocol.
