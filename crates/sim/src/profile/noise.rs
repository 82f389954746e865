//! Disturbance from outside the system under test.

/// One kind of disturbance: how often and how long, for each CPU by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// Mean time from one to the next, in ns.
    pub period_ns: u64,
    /// How gaps are spread around that mean.
    pub gaps: Gaps,
    /// How long each is.
    pub lengths: Lengths,
}

/// How the times from one disturbance to the next are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// Evenly between half and one and a half of the mean.
    Around,
    /// Without memory, as what has many independent causes: exponentially.
    Random,
}

/// How long disturbances are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lengths {
    /// One of these, in ns, with equal chance. Weight one by naming it more than once.
    Of([u64; 8]),
    /// A power law that is cut off: at least `least_ns`; whatever the length, it is at least twice
    /// that with the chance `doubles_1024` (in 1/1024); and drawn again above `most_ns`.
    Tail {
        /// The shortest, in ns.
        least_ns: u64,
        /// The longest, in ns.
        most_ns: u64,
        /// The chance of twice the length, in 1/1024.
        doubles_1024: u32,
    },
}

/// Disturbance from outside: off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Noise {
    /// The CPU does not run at all, whatever it was doing: a hypervisor, firmware.
    pub stolen: Option<Disturbance>,
    /// Somebody else's interrupt handler: only where interrupts are on; they are off meanwhile.
    pub irq_off: Option<Disturbance>,
}
