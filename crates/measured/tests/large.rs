//! Files that are larger than memory should be: samples, folded stacks and a log, made while they
//! are read. One test in a process of its own, so that its peak of memory is that of this reading.

use std::fs;
use std::io::{self, Read};
use std::time::Instant;

use mmscale_measured::{MAX_BYTES, Report, read_parts, resemble};

/// Bytes of text of which each form has its own record.
struct Made {
    left: usize,
    form: usize,
    record: Vec<u8>,
    at: usize,
    count: u64,
}

impl Made {
    fn new(mib: usize, form: usize) -> Self {
        Self { left: mib << 20, form, record: vec![], at: 0, count: 0 }
    }
    /// Every fourth record waits for zone->lock, the others for that of LRU lists.
    fn next(&mut self) {
        let n = self.count;
        let (lock, caller) = match n % 4 {
            0 => ("free_pcppages_bulk", "free_unref_page"),
            _ => ("folio_lruvec_lock_irqsave", "folio_batch_move_lru"),
        };
        let wait = "native_queued_spin_lock_slowpath";
        let text = match self.form {
            0 => format!(
                "usemem {n} [001] {n}.5: 1 cycles:\n\tffffffff81a0 {wait}+0x1 ([k])\n\t\
                 ffffffff81a1 _raw_spin_lock_irqsave+0x2 ([k])\n\tffffffff81a2 {lock}+0x3 ([k])\n\t\
                 ffffffff81a3 {caller}+0x4 ([k])\n\tffffffff81a4 work_{}+0x5 (a.out)\n\n",
                n % 5000
            ),
            1 => format!("work_{};{caller};{lock};_raw_spin_lock_irqsave;{wait} 1\n", n % 5000),
            _ => format!("[ {n}.000001] usemem[{n}]: nothing of interest, order {}\n", n % 11),
        };
        (self.record, self.at) = (text.into_bytes(), 0);
        self.count += 1;
    }
}

impl Read for Made {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.record.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.next();
            self.left = self.left.saturating_sub(self.record.len());
        }
        let n = to.len().min(self.record.len() - self.at);
        to[..n].copy_from_slice(&self.record[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The peak of this process's memory, in MiB.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn read(mib: usize, form: usize, whole: usize) -> (Report, f64) {
    let begin = Instant::now();
    let report = read_parts(Made::new(mib, form), whole).expect("a text");
    (report, begin.elapsed().as_secs_f64())
}

#[track_caller]
fn shares_are_right(report: &Report) {
    let found = resemble(report, &[]);
    let zone = found.items.iter().filter(|item| item.class == "zone").map(|item| item.weight);
    let share = zone.sum::<f64>() / found.weight();
    assert!((share - 0.25).abs() < 1e-4, "{share}");
}

/// The memory of a part and of the sums, in MiB, besides the first bytes of the file.
const MOST_MIB: u64 = 450;

#[test]
fn memory_is_bounded_and_time_grows_with_the_size() {
    for form in 0..2 {
        let (small, first) = read(10, form, 1 << 20);
        let peak = peak_mib();
        let (large, second) = read(30, form, 1 << 20);
        shares_are_right(&small);
        shares_are_right(&large);
        assert!(large.lines > 2 * small.lines);
        let grown = peak_mib() - peak;
        assert!(grown <= 32 && peak_mib() <= MOST_MIB, "{grown} MiB more, {} MiB", peak_mib());
        // Three times the size; a computer may be busy with something else.
        assert!(second < 10.0 * first + 1.0, "{first} s, then {second} s");
    }
}

#[test]
#[ignore = "minutes without --release: cargo test -p mmscale-measured --test large -- --ignored"]
fn a_gigabyte_is_read_in_bounded_memory() {
    for form in 0..3 {
        let (report, seconds) = read(1024, form, MAX_BYTES);
        println!("form {form}: {} lines, {seconds:.1} s, {} MiB", report.lines, peak_mib());
        if form < 2 {
            shares_are_right(&report);
        }
        assert!(peak_mib() <= MOST_MIB, "{} MiB", peak_mib());
    }
}
