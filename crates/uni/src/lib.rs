//! A one-host-thread machine for unit tests of mm: every CPU is stepped by hand.
