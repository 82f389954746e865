//! Programs of others that do nearly the same.

/// A benchmark that does nearly what a script does.
pub(super) struct Near {
    /// The name of the script or study.
    name: &'static str,
    /// The command; N stands for the number of tasks.
    pub(super) command: &'static str,
    /// Where it is from.
    pub(super) source: &'static str,
}

const WILL_IT_SCALE: &str = "https://github.com/antonblanchard/will-it-scale";
const STRESS_NG: &str = "https://github.com/ColinIanKing/stress-ng";

const fn will_it_scale(name: &'static str, command: &'static str) -> Near {
    Near { name, command, source: WILL_IT_SCALE }
}
const fn stress_ng(name: &'static str, command: &'static str) -> Near {
    Near { name, command, source: STRESS_NG }
}

/// The comments of the scripts name the same benchmarks. The options of stress-ng for `churn` are
/// those of the report.
const ALL: [Near; 16] = [
    will_it_scale("page_fault1", "./page_fault1_processes -t N -s 10"),
    will_it_scale("page_fault2", "./page_fault2_processes -t N -s 10"),
    will_it_scale("page_fault3", "./page_fault3_processes -t N -s 10"),
    will_it_scale("mmap1", "./mmap1_processes -t N -s 10"),
    will_it_scale("mmap2", "./mmap2_processes -t N -s 10"),
    will_it_scale("malloc1", "./malloc1_processes -t N -s 10"),
    will_it_scale("brk1", "./brk1_processes -t N -s 10"),
    will_it_scale("fork1", "./fork1_processes -t N -s 10"),
    will_it_scale("tlb_flush1", "./tlb_flush1_processes -t N -s 10"),
    will_it_scale("tlb_flush2", "./tlb_flush2_processes -t N -s 10"),
    will_it_scale("tlb_flush3", "./tlb_flush3_processes -t N -s 10"),
    stress_ng("stress-fork", "stress-ng --fork N --fork-max 1 --timeout 10 --metrics"),
    stress_ng("stress-mremap", "stress-ng --mremap N --mremap-bytes 64K --timeout 10 --metrics"),
    stress_ng("stress-vm", "stress-ng --vm N --vm-bytes 1M --timeout 10 --metrics"),
    stress_ng("churn", "stress-ng --mremap 8192 --mremap-bytes 4K --timeout 30 --metrics"),
    stress_ng("vmstat", "stress-ng --vm N --timeout 10 --metrics"),
];

/// Returns the benchmark that is nearest, if there is one. `threads`: tasks are threads.
pub(super) fn nearest(name: &str, threads: bool) -> Option<(String, &'static str)> {
    let near = ALL.iter().find(|near| near.name == name)?;
    let command = if threads {
        near.command.replace("_processes", "_threads")
    } else {
        near.command.to_owned()
    };
    Some((command, near.source))
}
