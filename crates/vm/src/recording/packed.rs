//! Records of an operation in little memory: most of them repeat the places and the addresses of
//! earlier ones, so a record is a few bytes with numbers of these.

use super::records::{Raw, Type};
use std::collections::HashMap;

/// Bits of a byte of a number; the highest one says that others follow.
const BITS: u32 = 7;

/// A record without its time and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    what: Type,
    writes: bool,
    locked: bool,
    function: i32,
    caller: i32,
    acquire: i32,
    value: u32,
}

/// Records, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    kinds: Vec<Kind>,
    addresses: Vec<u64>,
    /// Of each record three numbers: its kind, its time, its address.
    numbers: Vec<u8>,
    records: usize,
}

/// Records that are being packed.
#[derive(Debug, Default)]
pub(super) struct Packer {
    packed: Packed,
    kinds: HashMap<Kind, u32>,
    addresses: HashMap<u64, u32>,
}

impl Packer {
    pub(super) fn push(&mut self, raw: Raw) {
        let Raw { address, after, function, caller, acquire, value, what, writes, locked } = raw;
        let kind = Kind { what, writes, locked, function, caller, acquire, value };
        let Packed { kinds, addresses, numbers, records } = &mut self.packed;
        let kind = *self.kinds.entry(kind).or_insert_with(|| {
            kinds.push(kind);
            kinds.len() as u32 - 1
        });
        let address = *self.addresses.entry(address).or_insert_with(|| {
            addresses.push(address);
            addresses.len() as u32 - 1
        });
        for number in [kind, after, address] {
            add(numbers, number);
        }
        *records += 1;
    }
    /// Returns the bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.packed.bytes()
    }
    pub(super) fn done(self) -> Packed {
        let mut packed = self.packed;
        packed.kinds.shrink_to_fit();
        packed.addresses.shrink_to_fit();
        packed.numbers.shrink_to_fit();
        packed
    }
}

impl Packed {
    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.records
    }
    /// Returns the bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.kinds.len() * size_of::<Kind>() + self.addresses.len() * 8 + self.numbers.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = Raw> + '_ {
        let mut at = &self.numbers[..];
        (0..self.records).map(move |_| {
            let [kind, after, address] = [(); 3].map(|()| next(&mut at));
            let Kind { what, writes, locked, function, caller, acquire, value } =
                self.kinds[kind as usize];
            let address = self.addresses[address as usize];
            Raw { address, after, function, caller, acquire, value, what, writes, locked }
        })
    }
}

impl FromIterator<Raw> for Packed {
    fn from_iter<I: IntoIterator<Item = Raw>>(records: I) -> Self {
        let mut packer = Packer::default();
        records.into_iter().for_each(|raw| packer.push(raw));
        packer.done()
    }
}

fn add(numbers: &mut Vec<u8>, mut number: u32) {
    while number >= 1 << BITS {
        numbers.push(number as u8 | 1 << BITS);
        number >>= BITS;
    }
    numbers.push(number as u8);
}

/// Takes the first number.
fn next(numbers: &mut &[u8]) -> u32 {
    let (mut number, mut shift) = (0, 0);
    while let [byte, rest @ ..] = numbers {
        *numbers = rest;
        number |= u32::from(byte & !(1 << BITS)) << shift;
        if byte >> BITS == 0 {
            break;
        }
        shift += BITS;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(at: u32) -> Raw {
        Raw {
            address: u64::MAX - u64::from(at % 7),
            after: [0, 127, 128, 70_000, u32::MAX][at as usize % 5],
            function: at as i32 % 3 - 1,
            caller: 300,
            acquire: -1,
            value: at % 2,
            what: Type::Access,
            writes: at.is_multiple_of(3),
            locked: at.is_multiple_of(2),
        }
    }

    #[test]
    fn records_are_unpacked_as_they_were() {
        let all: Vec<Raw> = (0..1000).map(raw).collect();
        let packed: Packed = all.iter().copied().collect();
        assert_eq!(packed.iter().collect::<Vec<Raw>>(), all);
        assert_eq!(packed.len(), 1000);
        assert!(packed.bytes() < 7000, "{} bytes", packed.bytes());
        assert_eq!(Packed::default().iter().count(), 0);
    }
}
