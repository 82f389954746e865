//! The System trait over mm, on any machine.
#![no_std]
