//! This computer's OS threads as a machine.
