//! Offline decode and check, independent of the engine.
