//! Random operations on address spaces and on the model: short sequences that shrink, long ones
//! with a seed. The important cases are counted, and each must occur.

use crate::address::machine::POLICIES;
use crate::address::steps::{CPUS, Cases, Run, Setting, Step};
use mmscale_arch::{VmaRange, Vpn};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::space::{
    Advice, HugePages, LockWhat, MapRequest, MayMove, Place, Present, Prot, RemapRequest,
    SpaceConfig, VmaFlags,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Chooses steps.
struct Chooser {
    random: Random,
    setting: Setting,
    last: Option<VmaRange>,
    /// The next step, if it is determined already.
    next: Option<Step>,
}

const ADVICE: [Advice; 10] = [
    Advice::Free,
    Advice::PageOut,
    Advice::DontNeed,
    Advice::Free,
    Advice::Cold,
    Advice::PageOut,
    Advice::PopulateRead,
    Advice::PopulateWrite,
    Advice::WillNeed,
    Advice::Collapse,
];
/// Advice that only changes the flags of VMAs.
const FLAG_ADVICE: [Advice; 13] = [
    Advice::HugePage,
    Advice::NoHugePage,
    Advice::DontFork,
    Advice::DoFork,
    Advice::WipeOnFork,
    Advice::KeepOnFork,
    Advice::Normal,
    Advice::Random,
    Advice::Sequential,
    Advice::Mergeable,
    Advice::Unmergeable,
    Advice::DontDump,
    Advice::DoDump,
];

impl Chooser {
    fn new(seed: u64, setting: Setting) -> Self {
        Self { random: Random(seed), setting, last: None, next: None }
    }
    /// With huge pages most ends are multiples of a quarter of one.
    fn rounded(&mut self, number: u64) -> u64 {
        if self.setting.largest < 512 || self.random.one_in(4) {
            return number;
        };
        number & !(self.random.pick(&[512, 512, 256, 128]) - 1)
    }
    /// A page: in most cases of the arena, otherwise one that mmap has chosen.
    fn page(&mut self, run: &Run) -> u64 {
        if self.random.one_in(6) {
            let last = run.model().pages.keys().next_back();
            if let Some(last) = last {
                let back = self.random.below(self.setting.largest * 2);
                return self.rounded(last.saturating_sub(back));
            }
        }
        let at = self.setting.base + self.random.below(self.setting.pages);
        self.rounded(at).max(self.setting.base)
    }
    fn size(&mut self) -> u64 {
        let pages = 1 + self.random.below(self.setting.largest);
        self.rounded(pages).max(1)
    }
    fn range(&mut self, run: &Run) -> VmaRange {
        let (page, pages) = (self.page(run), self.size());
        // Often exactly one VMA, or the gap between two.
        if self.random.one_in(3)
            && let Some((&first, _)) = run.model().pages.range(page..).next()
            && run.model().one_vma(first, first + pages)
        {
            return crate::address::machine::range(first, pages);
        }
        crate::address::machine::range(page, pages)
    }
    /// A range of the arena that could be a huge page.
    fn stretch(&mut self, run: &Run) -> Option<VmaRange> {
        let (from, pages) = (self.setting.base, self.setting.pages);
        let skip = self.random.below(4) as usize;
        let mut stretches = (from..from + pages - 512).filter(|at| at.is_multiple_of(512));
        let start = stretches.find(|&at| run.model().one_vma(at, at + 512));
        let more = stretches.filter(|&at| run.model().one_vma(at, at + 512));
        let start = more.take(skip).last().or(start);
        start.map(|at| crate::address::machine::range(at, 512))
    }
    /// A page of the range, or, in most cases, the next mapped page after it.
    fn touched(&mut self, run: &Run, range: VmaRange) -> u64 {
        let page = range.start().get() + self.random.below(range.pages());
        let mapped = run.model().pages.range(page..).find(|(_, page)| !page.prot.is_empty());
        mapped.filter(|_| !self.random.one_in(6)).map_or(page, |(&at, _)| at)
    }
    fn prot(&mut self) -> Prot {
        self.random.pick(&[Prot::RW, Prot::RW, Prot::RW, Prot::READ, Prot::NONE])
    }
    fn map(&mut self, run: &Run) -> MapRequest {
        let page = Vpn::new(self.page(run));
        let place = match self.random.below(12) {
            0 => Place::Any,
            1..3 => Place::Hint(page),
            3..5 => Place::Free(page),
            _ => Place::Fixed(page),
        };
        let mut request = MapRequest::new(self.size()).at(place).prot(self.prot());
        request.populate = self.random.one_in(4);
        if self.random.one_in(12) {
            request.flags = VmaFlags::LOCKED;
        }
        match self.random.below(300) {
            0 => request.pages = 0,
            1 => request.pages = u64::MAX - self.random.below(3),
            2 => request.pages = Vpn::USER_END.get() - self.random.below(40),
            _ => {}
        }
        request
    }
    fn remap(&mut self, run: &Run) -> RemapRequest {
        let mut old = self.range(run);
        // Often a moved page, back to its original range.
        let moved = run.model().pages.range(self.page(run)..).find(|(at, page)| **at != page.index);
        let mut to = self.page(run);
        if let Some((&at, page)) = moved.filter(|_| self.random.one_in(3)) {
            let most = self.random.below(self.setting.largest) + 1;
            let pages = (1..=most).take_while(|&pages| run.model().one_vma(at, at + pages)).last();
            old = crate::address::machine::range(at, pages.unwrap_or(1));
            to = page.index;
        }
        let mut new_pages = if self.random.one_in(3) { old.pages() } else { self.size() };
        let may_move = match self.random.below(10) {
            0..3 => MayMove::No,
            3..5 => MayMove::Anywhere,
            5 => {
                new_pages = if self.random.one_in(8) { new_pages } else { old.pages() };
                MayMove::Leave
            }
            _ => MayMove::To(Vpn::new(to)),
        };
        let mut old_pages = old.pages();
        match self.random.below(300) {
            0 => new_pages = 0,
            1 => new_pages = u64::MAX - self.random.below(3),
            2 => old_pages = 0,
            3 => old_pages = u64::MAX - self.random.below(3),
            _ => {}
        }
        RemapRequest { from: old.start(), old_pages, new_pages, may_move }
    }
    fn step(&mut self, run: &Run) -> Step {
        if let Some(next) = self.next.take() {
            return next;
        }
        // Often another operation on the pages of the last step.
        let again = self.random.one_in(3);
        let range = self.last.filter(|_| again).unwrap_or_else(|| self.range(run));
        self.last = Some(range);
        let page = self.touched(run, range);
        match self.random.below(100) {
            0..16 => Step::Map(self.map(run)),
            16..22 => Step::Unmap(range),
            22..30 => Step::Protect(range, self.prot()),
            30..39 => Step::Remap(self.remap(run)),
            39..48 => {
                let large = self.setting.largest >= 512 && self.random.one_in(4);
                if large {
                    return Step::Advise(self.stretch(run).unwrap_or(range), Advice::Collapse);
                }
                let flags = self.random.one_in(3);
                let advice = self.random.pick(if flags { &FLAG_ADVICE[..] } else { &ADVICE });
                if advice == Advice::Free && self.random.one_in(2) {
                    self.next = Some(Step::Advise(range, Advice::PageOut));
                }
                Step::Advise(range, advice)
            }
            48..51 => {
                let what = self.random.pick(&[LockWhat::Everything, LockWhat::OnFault]);
                Step::Lock(range, what)
            }
            51..54 => Step::Unlock(range),
            54..57 => {
                let present = self.random.pick(&[Present::Stay, Present::Move]);
                Step::Bind(range, self.random.below(2) as usize, present)
            }
            57..60 => Step::Core(range),
            60..68 => Step::Read(page),
            68..91 => Step::Write(page, 1 + self.random.below(u64::MAX - 1)),
            91..93 => Step::Fork,
            93 if self.random.one_in(2) => Step::Exit,
            94..97 => Step::Turn(self.random.below(3) as usize),
            97..99 => Step::Cpu(self.random.below(CPUS as u64) as usize),
            99 if self.random.one_in(2) => Step::Finish(self.random.below(60) as usize),
            _ => Step::Drain,
        }
    }
}

/// Crosses the end of a page table, and is too small for a huge page.
fn small(policy: LruPolicy, broadcast: bool) -> Setting {
    let config =
        SpaceConfig { memlock_pages: 60, huge: HugePages::Always, ..SpaceConfig::default() };
    Setting { policy, config, base: 512 * 9 - 100, pages: 220, largest: 24, broadcast, slots: 80 }
}

/// Several huge pages.
fn large(policy: LruPolicy, huge: HugePages, broadcast: bool) -> Setting {
    let config = SpaceConfig { memlock_pages: 2000, huge, ..SpaceConfig::default() };
    Setting { policy, config, base: 512 * 6, pages: 512 * 5, largest: 1400, broadcast, slots: 500 }
}

fn long_run(seed: u64, setting: Setting, steps: usize) -> Cases {
    let (mut run, mut chooser) = (Run::new(setting), Chooser::new(seed, setting));
    for count in 0..steps {
        let step = chooser.step(&run);
        run.step(step);
        if count % 500 == 0 {
            run.verify();
        }
        if count % 3000 == 0 {
            run.compare_contents();
        }
    }
    run.end()
}

fn add(all: &mut Cases, more: Cases) {
    more.into_iter().for_each(|(case, count)| *all.entry(case).or_default() += count);
}

fn assert_reached(cases: &Cases, least: u64, expected: &[&str]) {
    for case in expected {
        let count = cases.get(case).copied().unwrap_or(0);
        assert!(count >= least, "{case:?} came up {count} times, of {cases:?}");
    }
}

const CASES: [&str; 36] = [
    "a freed page that is gone",
    "a read that faults",
    "a write after fork",
    "a write that faults",
    "advice for locked pages",
    "advice over holes",
    "exit with pages",
    "fork",
    "fork leaves VMAs out",
    "mbind leaves pages",
    "mbind moves all",
    "mincore over holes",
    "mlock",
    "mlock over the limit",
    "mmap elsewhere than hinted",
    "mmap joins both sides",
    "mmap joins one side",
    "mmap locks too much",
    "mmap over others",
    "mmap where something is",
    "mprotect makes one VMA of some",
    "mprotect up to a hole",
    "mremap back to where it was",
    "mremap moves content",
    "mremap grows in place",
    "mremap leaves an empty VMA",
    "mremap locks too much",
    "mremap moves and shrinks",
    "mremap of a moved VMA",
    "mremap of more than a VMA",
    "mremap onto others",
    "mremap shrinks in place",
    "mremap without room",
    "munlock",
    "munmap inside a VMA",
    "munmap over holes",
];

#[test]
fn small_pages() {
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let mut cases = Cases::new();
        for broadcast in [false, true] {
            let seed = at as u64 * 10 + u64::from(broadcast);
            add(&mut cases, long_run(seed, small(policy, broadcast), 120_000));
        }
        assert_reached(&cases, 10, &CASES);
    }
}

#[test]
fn huge_pages() {
    let mut cases = Cases::new();
    for (at, policy) in POLICIES.into_iter().enumerate() {
        for huge in [HugePages::Never, HugePages::Advised, HugePages::Always] {
            let seed = 100 + at as u64 * 10 + huge as u64;
            add(&mut cases, long_run(seed, large(policy, huge, huge as u64 == 1), 3_000));
        }
    }
    let expected = ["collapse", "collapse of shared pages", "mremap moves content"];
    assert_reached(&cases, 10, &expected);
}

#[test]
fn few_vmas() {
    let mut cases = Cases::new();
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let mut setting = small(policy, false);
        setting.config.vmas_max = 12;
        add(&mut cases, long_run(200 + at as u64, setting, 40_000));
    }
    assert_reached(&cases, 20, &["munmap of too many VMAs", "mmap of too many VMAs"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]
    /// The steps are derived from numbers; shrinking makes the numbers fewer and smaller.
    #[test]
    fn short_sequences(
        numbers in prop::collection::vec(any::<u64>(), 1..200),
        policy in prop::sample::select(&POLICIES[..]),
        huge in any::<bool>(),
    ) {
        let setting =
            if huge { large(policy, HugePages::Always, false) } else { small(policy, false) };
        let mut run = Run::new(setting);
        for number in numbers {
            let step = Chooser::new(number, setting).step(&run);
            run.step(step);
            run.verify();
        }
        run.end();
    }
}
