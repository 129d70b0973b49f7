//! Drives the engine with threads, io_uring and a clock.
