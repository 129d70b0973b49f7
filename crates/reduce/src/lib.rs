//! Data reduction as pure jobs: fill detection and checksums.
