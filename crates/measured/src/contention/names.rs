//! Numbers for values that repeat, in bounded memory.

use std::collections::BTreeMap;

/// Values with their numbers. Number 0 stands for the empty value and for all that have no room.
#[derive(Clone, Debug)]
pub(super) struct Names<T> {
    numbers: BTreeMap<T, u32>,
    values: Vec<T>,
    /// How often a value had no room.
    pub(super) left_out: u64,
}

impl<T: Default + Ord + Clone> Default for Names<T> {
    fn default() -> Self {
        let empty = T::default();
        Self { numbers: BTreeMap::from([(empty.clone(), 0)]), values: vec![empty], left_out: 0 }
    }
}

impl<T: Default + Ord + Clone> Names<T> {
    /// Returns the number of a value, a new one if there are fewer than `most`.
    pub(super) fn number(&mut self, value: T, most: usize) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        if self.values.len() >= most {
            self.left_out += 1;
            return 0;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
    /// Returns the value of a number.
    pub(super) fn value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}
