//! The number of tasks that wait for one lock together, and how it changes in time.

/// Stretches of time that are kept.
const BINS: usize = 64;
/// The length of a stretch at the beginning of a trace, in ns.
const FIRST_NS: u64 = 1 << 17;
/// Larger herds are counted as one of this size.
const MOST: usize = 1 << 12;

/// The herds of a trace.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Herds {
    /// The start of the trace, in ns.
    from_ns: Option<u64>,
    bin_ns: u64,
    /// The waited time of each stretch, of all tasks.
    bins: Vec<u64>,
    /// The waited time with this number of tasks waiting for the same lock.
    by_size: Vec<u64>,
    /// The largest herd, its lock, and when it was complete.
    pub(super) most: Option<(usize, u64, u64)>,
}

impl Default for Herds {
    fn default() -> Self {
        let (bins, by_size) = (vec![0; BINS], Vec::new());
        Self { from_ns: None, bin_ns: FIRST_NS, bins, by_size, most: None }
    }
}

impl Herds {
    /// Counts a stretch of time in which `size` tasks wait for a lock.
    pub(super) fn waited(&mut self, size: usize, from_ns: u64, until_ns: u64) {
        let size = size.min(MOST);
        if size == 0 || until_ns <= from_ns {
            return;
        }
        if self.by_size.len() <= size {
            self.by_size.resize(size + 1, 0);
        }
        let waited = |ns: u64| ns.saturating_mul(size as u64);
        self.by_size[size] = self.by_size[size].saturating_add(waited(until_ns - from_ns));
        let start = *self.from_ns.get_or_insert(from_ns);
        let (mut at, end) = (from_ns.max(start) - start, until_ns.max(start) - start);
        while end > self.bin_ns * BINS as u64 {
            for bin in 0..BINS {
                let pair = |at: usize| self.bins.get(at).copied().unwrap_or(0);
                self.bins[bin] = pair(2 * bin).saturating_add(pair(2 * bin + 1));
            }
            self.bin_ns *= 2;
        }
        while at < end {
            let bin = (at / self.bin_ns) as usize;
            let next = ((bin as u64 + 1) * self.bin_ns).min(end);
            let bin = &mut self.bins[bin.min(BINS - 1)];
            *bin = bin.saturating_add(waited(next - at));
            at = next;
        }
    }

    /// Notes the size of a herd at the moment when it grows.
    pub(super) fn grown(&mut self, size: usize, lock: u64, ns: u64) {
        self.from_ns.get_or_insert(ns);
        if self.most.is_none_or(|(most, _, _)| size > most) {
            self.most = Some((size, lock, ns));
        }
    }

    /// Returns the shares of the waited time by the number of tasks that wait together: 1, 2 to 3,
    /// 4 to 7, and so on.
    pub(super) fn shares(&self) -> Vec<(usize, f64)> {
        let all = self.by_size.iter().fold(0_u64, |all, waited| all.saturating_add(*waited));
        let mut shares: Vec<(usize, f64)> = Vec::new();
        for (size, waited) in self.by_size.iter().enumerate().skip(1) {
            let from = 1 << size.ilog2();
            let share = *waited as f64 / all.max(1) as f64;
            match shares.last_mut() {
                Some(last) if last.0 == from => last.1 += share,
                _ => shares.push((from, share)),
            }
        }
        shares.retain(|(_, share)| *share > 0.0);
        shares
    }

    /// Returns the length of a stretch in ns, and how many tasks waited in each on average, up to
    /// the end of the trace.
    pub(super) fn in_time(&self, end_ns: u64, most: usize) -> (u64, Vec<f64>) {
        let length = end_ns.saturating_sub(self.from_ns.unwrap_or(end_ns));
        let bins = length.div_ceil(self.bin_ns).clamp(1, BINS as u64) as usize;
        let together = bins.div_ceil(most);
        let stretch = self.bin_ns * together as u64;
        let mean = |at: usize, bins: &[u64]| {
            // The last stretch is shorter.
            let ns = stretch.min(length.saturating_sub(at as u64 * stretch)).max(1);
            bins.iter().map(|waited| *waited as f64).sum::<f64>() / ns as f64
        };
        let chunks = self.bins[..bins].chunks(together).enumerate();
        (stretch, chunks.map(|(at, bins)| mean(at, bins)).collect())
    }

    /// Returns the start of the trace, in ns.
    pub(super) fn start_ns(&self) -> u64 {
        self.from_ns.unwrap_or(0)
    }
}
