//! Workloads, arms, repeats, statistics.
