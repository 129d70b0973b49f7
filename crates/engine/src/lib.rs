//! The core of Windrow as a state machine.
