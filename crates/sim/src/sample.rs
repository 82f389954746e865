//! A made-up machine for tests, examples and benchmarks of the engine.

use crate::profile::{Clock, Costs, Limits, LineCosts, Noise, Profile, SwapDevice, Topology};
use mmscale_arch::Op;

/// Returns a machine of two nodes with round costs that model no real machine; not for results.
pub fn sample_profile(cpus: usize) -> Profile {
    Profile {
        name: "sample".to_owned(),
        description: "a made-up machine for tests of the engine".to_owned(),
        hash: 0,
        bases: vec![],
        topology: Topology { cpus, smt: 2, cluster: 8.min(cpus), nodes: 2.min(cpus) },
        node_pages: 1 << 18,
        page_bytes: 4096,
        tlb_broadcast_spaces: 0,
        hz: 1000,
        costs: Costs {
            op_ps: [20_000; Op::ALL.len()],
            line: LineCosts {
                own_ps: 1_000,
                smt_ps: 8_000,
                cluster_ps: 25_000,
                node_ps: 50_000,
                remote_ps: 130_000,
                memory_ps: 90_000,
            },
            frame_hidden_1024: 0,
            atomic_ps: 6_000,
            far_add_ps: 0,
            lock_ps: 10_000,
            unlock_ps: 3_000,
            handoff_fixed_ps: 60_000,
            handoff_lines_1024: 1024,
            ipi_send_ps: 150_000,
            ipi_delivery_ps: 900_000,
            irq_ps: 300_000,
            tlb_broadcast_ps: 0,
            tlb_serial_ps: 0,
            switch_ps: 800_000,
            wake_ps: 300_000,
            idle_exit_ps: 2_000_000,
            idle_spread_1024: 0,
            idle_deep_exit_ps: 0,
            idle_deep_after_ps: 0,
            node_bytes_per_us: 20_000,
            write_traffic_1024: 1024,
            cluster_cache_kib: 32_768,
            jitter_1024: 32,
            instruction_ps: 350,
            hold_instruction_ps: 200,
        },
        swap: SwapDevice {
            read_ps: 80_000_000,
            write_ps: 20_000_000,
            bytes_per_us: 3_000,
            depth: 64,
        },
        noise: Noise::default(),
        clock: Clock::default(),
        limits: Limits::default(),
    }
}
