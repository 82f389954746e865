//! The tests of benchmarks that the kernel test robot runs: the script that makes the calls of
//! each, or why no script can.

/// The script of a test, or the reason why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// A built-in script with these parameters.
    Script(&'static str, &'static [(&'static str, &'static str)]),
    /// No script can make its calls, for this reason.
    Not(&'static str),
}

use Said::{Not, Script};

const NO_FILES: &str = "a script has no reads, writes and locks of files";
const NO_FUTEX: &str = "a script has no futexes, semaphores and locks of programs";
const NO_PIPES: &str = "a script has no pipes, sockets and other descriptors";
const NO_SIGNALS: &str = "a script has no signals";
const NO_HUGETLB: &str = "hugetlb pages are not simulated";
const NO_PRESSURE: &str = "a script does not choose the size of memory and swap";
const NO_GROUPS: &str = "a script makes no memory groups";
const NO_SCHED: &str = "the calls of the scheduler are not simulated";
const NO_KSM: &str = "KSM is not simulated";
const NO_MSYNC: &str = "a script has no msync and no writeback";
const NO_SYSV: &str = "a script has no System V memory; a file that all processes map comes near";
const NO_VFORK: &str = "a script has no vfork, whose child uses the memory of its parent";
const NO_SPECIAL: &str = "a script has no such call";

const THREADS: (&str, &str) = ("in_threads", "1");
const RANDOM: (&str, &str) = ("random", "1");
const READS: (&str, &str) = ("reads", "1");
const WRITES: (&str, &str) = ("writes", "1");
const SHARED: (&str, &str) = ("own", "0");
const COW: (&str, &str) = ("cow", "1");

/// Tests of will-it-scale. Its mode chooses threads or processes.
const WILL_IT_SCALE: [(&str, Said); 54] = [
    ("brk1", Script("brk1", &[])),
    ("brk2", Script("brk2", &[])),
    ("context_switch1", Not(NO_PIPES)),
    ("dup1", Not(NO_PIPES)),
    ("eventfd1", Not(NO_PIPES)),
    ("fallocate1", Not(NO_FILES)),
    ("fallocate2", Not(NO_FILES)),
    ("fork1", Script("fork1", &[])),
    ("futex1", Not(NO_FUTEX)),
    ("futex2", Not(NO_FUTEX)),
    ("futex3", Not(NO_FUTEX)),
    ("futex4", Not(NO_FUTEX)),
    ("getppid1", Not(NO_SPECIAL)),
    ("lock1", Not(NO_FILES)),
    ("lock2", Not(NO_FILES)),
    ("lseek1", Not(NO_FILES)),
    ("lseek2", Not(NO_FILES)),
    ("malloc1", Script("malloc1", &[])),
    ("malloc2", Script("malloc2", &[])),
    ("mmap1", Script("mmap1", &[])),
    ("mmap2", Script("mmap2", &[])),
    ("open1", Not(NO_FILES)),
    ("open2", Not(NO_FILES)),
    ("open3", Not(NO_FILES)),
    ("page_fault1", Script("page_fault1", &[])),
    ("page_fault2", Script("page_fault2", &[])),
    ("page_fault3", Script("page_fault3", &[])),
    ("pipe1", Not(NO_PIPES)),
    ("poll1", Not(NO_PIPES)),
    ("poll2", Not(NO_PIPES)),
    ("posix_semaphore1", Not(NO_FUTEX)),
    ("pread1", Not(NO_FILES)),
    ("pread2", Not(NO_FILES)),
    ("pread3", Not(NO_FILES)),
    ("pthread_mutex1", Not(NO_FUTEX)),
    ("pthread_mutex2", Not(NO_FUTEX)),
    ("pwrite1", Not(NO_FILES)),
    ("pwrite2", Not(NO_FILES)),
    ("pwrite3", Not(NO_FILES)),
    ("read1", Not(NO_FILES)),
    ("read2", Not(NO_FILES)),
    ("read3", Not(NO_FILES)),
    ("read4", Not(NO_FILES)),
    ("readseek1", Not(NO_FILES)),
    ("sched_yield", Not(NO_SCHED)),
    ("signal1", Not(NO_SIGNALS)),
    ("tlb_flush1", Script("tlb_flush1", &[])),
    ("tlb_flush2", Script("tlb_flush2", &[])),
    ("tlb_flush3", Script("tlb_flush3", &[])),
    ("unix1", Not(NO_PIPES)),
    ("unlink1", Not(NO_FILES)),
    ("unlink2", Not(NO_FILES)),
    ("write1", Not(NO_FILES)),
    ("writeseek1", Not(NO_FILES)),
];

/// Tests of vm-scalability, which are its files `case-*`.
const VM_SCALABILITY: [(&str, Said); 57] = [
    ("anon-cow-rand", Script("usemem", &[COW, RANDOM])),
    ("anon-cow-rand-hugetlb", Not(NO_HUGETLB)),
    ("anon-cow-rand-mt", Script("usemem", &[COW, RANDOM])),
    ("anon-cow-seq", Script("usemem", &[COW])),
    ("anon-cow-seq-hugetlb", Not(NO_HUGETLB)),
    ("anon-cow-seq-mt", Script("usemem", &[COW])),
    ("anon-r-rand", Script("usemem", &[RANDOM, READS])),
    ("anon-r-rand-mt", Script("usemem", &[RANDOM, READS, THREADS])),
    ("anon-r-seq", Script("usemem", &[READS])),
    ("anon-r-seq-mt", Script("usemem", &[READS, THREADS])),
    ("anon-rx-rand-mt", Script("usemem", &[RANDOM, READS, THREADS])),
    ("anon-rx-seq-mt", Script("usemem", &[READS, THREADS])),
    ("anon-w-rand", Script("usemem", &[RANDOM])),
    ("anon-w-rand-hugetlb", Not(NO_HUGETLB)),
    ("anon-w-rand-mt", Script("usemem", &[RANDOM, THREADS])),
    ("anon-w-seq", Script("usemem", &[])),
    ("anon-w-seq-hugetlb", Not(NO_HUGETLB)),
    ("anon-w-seq-mt", Script("usemem", &[THREADS])),
    ("anon-wx-rand-mt", Script("usemem", &[RANDOM, THREADS])),
    ("anon-wx-seq-mt", Script("usemem", &[THREADS])),
    ("direct-write", Not(NO_FILES)),
    ("hugetlb", Not(NO_HUGETLB)),
    ("ksm", Not(NO_KSM)),
    ("ksm-hugepages", Not(NO_KSM)),
    ("lru-file-mmap-read", Script("mapped-file", &[])),
    ("lru-file-mmap-read-rand", Script("mapped-file", &[RANDOM])),
    ("lru-file-readonce", Not(NO_FILES)),
    ("lru-file-readtwice", Not(NO_FILES)),
    ("lru-memcg", Not(NO_GROUPS)),
    ("lru-shm", Script("mapped-file", &[WRITES])),
    ("lru-shm-rand", Script("mapped-file", &[WRITES, RANDOM])),
    ("migrate-across-nodes", Script("stress-numa", &[])),
    ("mincore", Script("stress-mincore", &[])),
    ("mmap-pread-rand", Script("mapped-file", &[RANDOM])),
    ("mmap-pread-rand-mt", Script("mapped-file", &[RANDOM, THREADS])),
    ("mmap-pread-seq", Script("mapped-file", &[])),
    ("mmap-pread-seq-mt", Script("mapped-file", &[THREADS])),
    ("mmap-xread-rand", Script("mapped-file", &[RANDOM, SHARED])),
    ("mmap-xread-rand-mt", Script("mapped-file", &[RANDOM, SHARED, THREADS])),
    ("mmap-xread-seq", Script("mapped-file", &[SHARED])),
    ("mmap-xread-seq-mt", Script("mapped-file", &[SHARED, THREADS])),
    ("mremap-xread-rand-mt", Not(NO_SPECIAL)),
    ("msync", Not(NO_MSYNC)),
    ("msync-mt", Not(NO_MSYNC)),
    ("shm-pread-rand", Script("mapped-file", &[RANDOM])),
    ("shm-pread-rand-mt", Script("mapped-file", &[RANDOM, THREADS])),
    ("shm-pread-seq", Script("mapped-file", &[])),
    ("shm-pread-seq-mt", Script("mapped-file", &[THREADS])),
    ("shm-xread-rand", Script("mapped-file", &[RANDOM, SHARED])),
    ("shm-xread-rand-mt", Script("mapped-file", &[RANDOM, SHARED, THREADS])),
    ("shm-xread-seq", Script("mapped-file", &[SHARED])),
    ("shm-xread-seq-mt", Script("mapped-file", &[SHARED, THREADS])),
    ("small-allocs", Script("small-allocs", &[])),
    ("small-allocs-mt", Script("small-allocs", &[THREADS])),
    ("swap-w-rand", Not(NO_PRESSURE)),
    ("swap-w-seq", Not(NO_PRESSURE)),
    ("truncate", Not(NO_FILES)),
];

/// Stressors of stress-ng's classes `memory` and `vm`, and those of processes that use memory.
const STRESS_NG: [(&str, Said); 66] = [
    ("bad-altstack", Not(NO_SIGNALS)),
    ("bigheap", Script("stress-bigheap", &[])),
    ("brk", Script("brk1", &[])),
    ("clone", Not("a script has fork and threads, not clone with other flags")),
    ("context", Not(NO_SCHED)),
    ("cow", Script("usemem", &[COW])),
    ("fault", Script("stress-fault", &[])),
    ("fork", Script("stress-fork", &[])),
    ("full", Not(NO_FILES)),
    ("hdd", Not(NO_FILES)),
    ("judy", Not("a program that makes no calls")),
    ("lockbus", Not("a program that makes no calls")),
    ("madvise", Script("stress-madvise", &[])),
    ("malloc", Script("malloc1", &[])),
    ("mcontend", Not("a program that makes no calls")),
    ("membarrier", Not(NO_SPECIAL)),
    ("memcpy", Not("a program that makes no calls")),
    ("memfd", Script("stress-memfd", &[])),
    ("memhotplug", Not(NO_SPECIAL)),
    ("memrate", Not("a program that makes no calls")),
    ("memthrash", Not("a program that makes no calls")),
    ("mergesort", Not("a program that makes no calls")),
    ("mincore", Script("stress-mincore", &[])),
    ("misaligned", Not("a program that makes no calls")),
    ("mlock", Script("stress-mlock", &[])),
    ("mlockmany", Script("stress-mlock", &[])),
    ("mmap", Script("stress-mmap", &[])),
    ("mmapaddr", Script("stress-mmap", &[])),
    ("mmapfiles", Not("a script maps files that it made in memory")),
    ("mmapfixed", Script("stress-mmap", &[])),
    ("mmapfork", Script("stress-mmapfork", &[])),
    ("mmaphuge", Not(NO_HUGETLB)),
    ("mmapmany", Script("stress-mmapmany", &[])),
    ("mprotect", Script("stress-mprotect", &[])),
    ("mremap", Script("stress-mremap", &[])),
    ("msync", Not(NO_MSYNC)),
    ("munmap", Script("stress-mmap", &[])),
    ("numa", Script("stress-numa", &[])),
    ("oom-pipe", Not(NO_PIPES)),
    ("pageswap", Not(NO_PRESSURE)),
    ("physpage", Not(NO_SPECIAL)),
    ("pkey", Not(NO_SPECIAL)),
    ("prefetch", Not("a program that makes no calls")),
    ("remap", Not("a script has no remap_file_pages")),
    ("resources", Not(NO_SPECIAL)),
    ("rmap", Script("stress-rmap", &[])),
    ("rss", Script("usemem", &[])),
    ("secretmem", Not(NO_SPECIAL)),
    ("shm", Script("mapped-file", &[WRITES])),
    ("shm-sysv", Not(NO_SYSV)),
    ("stack", Not(NO_SIGNALS)),
    ("stackmmap", Not(NO_SIGNALS)),
    ("stream", Not("a program that makes no calls")),
    ("swap", Not(NO_PRESSURE)),
    ("sysbadaddr", Not(NO_SPECIAL)),
    ("tlb-shootdown", Script("stress-tlb-shootdown", &[])),
    ("tmpfs", Not(NO_FILES)),
    ("userfaultfd", Not(NO_SPECIAL)),
    ("vfork", Not(NO_VFORK)),
    ("vforkmany", Not(NO_VFORK)),
    ("vm", Script("stress-vm", &[])),
    ("vm-addr", Script("stress-vm", &[])),
    ("vm-rw", Not("a script has no process_vm_readv")),
    ("vm-segv", Not(NO_SIGNALS)),
    ("vm-splice", Not(NO_PIPES)),
    ("zombie", Script("stress-fork", &[])),
];

/// The tests of each benchmark.
const BENCHMARKS: [(&str, &[(&str, Said)]); 3] = [
    ("will-it-scale", &WILL_IT_SCALE),
    ("vm-scalability", &VM_SCALABILITY),
    ("stress-ng", &STRESS_NG),
];

/// Returns what there is for a test of a benchmark. `None` if neither is known.
pub(super) fn said(benchmark: &str, test: &str) -> Option<Said> {
    let (_, tests) = BENCHMARKS.iter().find(|(name, _)| *name == benchmark)?;
    tests.iter().find(|(name, _)| *name == test).map(|(_, said)| *said)
}

#[cfg(test)]
mod tests {
    use mmscale_studies::all;

    use super::*;
    use mmscale_harness::Registry;

    #[test]
    fn every_script_exists_and_has_the_parameters() {
        let registry: &Registry = all();
        let mut scripts = 0;
        for (test, said) in BENCHMARKS.iter().flat_map(|(_, tests)| tests.iter()) {
            let Script(script, set) = said else { continue };
            scripts += 1;
            let study = registry.find(script).unwrap_or_else(|why| panic!("{test}: {why}"));
            for (key, _) in *set {
                let has = study.params().iter().any(|param| param.name == *key);
                assert!(has, "{test}: {script} has no parameter {key}");
            }
        }
        assert!(scripts > 60, "{scripts}");
    }

    #[test]
    fn every_test_is_there_once() {
        for (benchmark, tests) in BENCHMARKS {
            for pair in tests.windows(2) {
                assert!(pair[0].0 < pair[1].0, "{benchmark}: {} and {}", pair[0].0, pair[1].0);
            }
        }
        assert_eq!(said("will-it-scale", "fork1"), Some(Script("fork1", &[])));
        assert_eq!(said("will-it-scale", "futex1"), Some(Not(NO_FUTEX)));
        assert_eq!(said("hackbench", "fork1"), None);
    }
}
