//! The types of a kernel, from its BTF (Documentation/bpf/btf.rst of Linux).

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
/// Kinds of types, by their numbers.
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const POINTER: u32 = 2;
const DATASEC: u32 = 15;
const ENUM64: u32 = 19;
/// Other names of a type, and marks on it.
const NAMES: [u32; 5] = [8, 9, 10, 11, 18];
/// Bytes of a structure from which on a name begins with it, and not with the one around it.
const LARGE: u64 = 128;
/// The section of variables that each CPU has.
const PER_CPU: &str = ".data..percpu";
/// Types within types that are followed.
const DEPTH: usize = 16;

struct Type {
    kind: u32,
    name: u32,
    /// Whether offsets of members have the sizes of bit fields.
    has_bits: bool,
    /// The size, or the number of another type.
    value: u32,
    /// Members: name, type, offset in bits. Of an array: its elements' type, and their number. Of a
    /// section: 0, type, offset in bytes.
    members: Vec<[u32; 3]>,
}

/// The types.
pub(super) struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    /// Structures by name.
    structures: HashMap<String, u32>,
}

/// A place in an object: the innermost large structure, and its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) structure: String,
    pub(super) member: String,
}

impl Btf {
    /// Reads the types; `None` if they are of another form.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let [header, types, types_bytes, strings, strings_bytes] =
            [4, 8, 12, 16, 20].map(|at| word(at).map(|word| word as usize));
        let (header, types, strings) = (header?, types?, strings?);
        let mut at = header.checked_add(types)?;
        let end = at.checked_add(types_bytes?)?;
        let strings = header.checked_add(strings)?;
        let strings = bytes.get(strings..strings.checked_add(strings_bytes?)?)?.to_vec();
        // Type 0 is `void`.
        let mut all = vec![Type { kind: 0, name: 0, has_bits: false, value: 0, members: vec![] }];
        while at < end {
            let (name, info, value) = (word(at)?, word(at + 4)?, word(at + 8)?);
            let (kind, number) = (info >> 24 & 0x1f, info as usize & 0xffff);
            at += 12;
            let three = |from: usize| Some([word(from)?, word(from + 4)?, word(from + 8)?]);
            let members = match kind {
                STRUCT | UNION => {
                    (0..number).map(|nth| three(at + 12 * nth)).collect::<Option<_>>()?
                }
                ARRAY => vec![three(at)?],
                DATASEC => {
                    let of = |nth| three(at + 12 * nth).map(|[of, offset, _]| [0, of, offset]);
                    (0..number).map(of).collect::<Option<_>>()?
                }
                _ => vec![],
            };
            at += match kind {
                STRUCT | UNION | DATASEC | ENUM64 => 12 * number,
                ENUM | 13 => 8 * number,
                ARRAY => 12,
                1 | 14 | 17 => 4,
                _ => 0,
            };
            all.push(Type { kind, name, has_bits: info >> 31 == 1, value, members });
        }
        let mut btf = Self { types: all, strings, structures: HashMap::new() };
        let structures = btf.types.iter().enumerate().filter(|(_, of)| of.kind == STRUCT);
        btf.structures =
            structures.map(|(id, of)| (btf.text(of.name).to_owned(), id as u32)).collect();
        Some(btf)
    }

    fn text(&self, at: u32) -> &str {
        let bytes = self.strings.get(at as usize..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or("")
    }

    /// Returns a type without other names and marks.
    fn bare(&self, mut id: u32) -> Option<&Type> {
        for _ in 0..DEPTH {
            let of = self.types.get(id as usize)?;
            if !NAMES.contains(&of.kind) {
                return Some(of);
            }
            id = of.value;
        }
        None
    }

    fn size(&self, id: u32, depth: usize) -> u64 {
        let Some(of) = self.bare(id).filter(|_| depth > 0) else { return 0 };
        match of.kind {
            POINTER => 8,
            ARRAY => {
                let [element, _, number] = of.members[0];
                self.size(element, depth - 1) * u64::from(number)
            }
            _ => of.value.into(),
        }
    }

    /// Whether there is a structure of this name.
    pub(super) fn has(&self, structure: &str) -> bool {
        self.structures.contains_key(structure)
    }

    /// Returns the size of a structure.
    pub(super) fn size_of(&self, structure: &str) -> Option<u64> {
        self.structures.get(structure).map(|id| self.size(*id, DEPTH))
    }

    /// Returns the offset of a member in a structure.
    pub(super) fn offset_of(&self, structure: &str, member: &str) -> Option<u64> {
        let of = &self.types[*self.structures.get(structure)? as usize];
        let found = of.members.iter().find(|[name, ..]| self.text(*name) == member)?;
        Some(of.bytes(found[2]))
    }

    /// Returns the place at an offset in a structure.
    pub(super) fn place(&self, structure: &str, offset: u64) -> Option<Place> {
        self.within(*self.structures.get(structure)?, offset)
    }

    /// Returns the variable that each CPU has at an offset, and the place in it.
    pub(super) fn per_cpu(&self, offset: u64) -> Option<Place> {
        let section =
            self.types.iter().find(|of| of.kind == DATASEC && self.text(of.name) == PER_CPU)?;
        let variable = section.members.iter().rfind(|[_, id, at]| {
            let at = u64::from(*at);
            let size = self.types.get(*id as usize).map_or(0, |of| self.size(of.value, DEPTH));
            (at..at + size.max(1)).contains(&offset)
        })?;
        let of = self.types.get(variable[1] as usize)?;
        let name = self.text(of.name).to_owned();
        let place = self.within(of.value, offset - u64::from(variable[2]));
        Some(place.unwrap_or(Place { structure: name, member: String::new() }))
    }

    fn within(&self, mut id: u32, mut offset: u64) -> Option<Place> {
        let mut place: Option<Place> = None;
        for _ in 0..DEPTH {
            let of = self.bare(id)?;
            if of.kind == ARRAY {
                id = of.members[0][0];
                let size = self.size(id, DEPTH);
                offset = offset.checked_rem(size)?;
                continue;
            }
            let name = self.text(of.name);
            if of.kind == STRUCT
                && !name.is_empty()
                && (place.is_none() || of.value >= LARGE as u32)
            {
                place = Some(Place { structure: name.to_owned(), member: String::new() });
            }
            let member = of.members.iter().find(|[_, id, at]| {
                let at = of.bytes(*at);
                (at..at + self.size(*id, DEPTH)).contains(&offset)
            });
            let (Some([name, inner, at]), STRUCT | UNION) = (member, of.kind) else { break };
            let name = self.text(*name);
            match &mut place {
                Some(place) if place.member.is_empty() => place.member = name.to_owned(),
                _ => {}
            }
            offset -= of.bytes(*at);
            id = *inner;
        }
        place
    }
}

impl Type {
    /// Returns the offset of a member in bytes.
    fn bytes(&self, offset: u32) -> u64 {
        let bits = if self.has_bits { offset & 0xff_ffff } else { offset };
        u64::from(bits / 8)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// `struct outer { long a; struct { struct big b[2]; }; }`, where `struct big` has 128 bytes:
    /// `lock` of 8 at 0, `list` of 8 at 64; and `outer` as a variable of each CPU at 256.
    pub(in crate::recording) fn types() -> Vec<u8> {
        let mut strings = vec![0];
        let mut text = |name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            at
        };
        let of = |kind: u32, number: u32| kind << 24 | number;
        let [long, big, outer, a, lock, list, b, var, section] =
            ["long", "big", "outer", "a", "lock", "list", "b", "var", PER_CPU].map(&mut text);
        let words = [
            vec![long, of(1, 0), 8, 0],
            vec![big, of(STRUCT, 2), 128, lock, 1, 0, list, 1, 512],
            vec![0, of(ARRAY, 0), 0, 2, 1, 2],
            vec![0, of(STRUCT, 1), 256, b, 3, 0],
            vec![outer, of(STRUCT, 2), 264, a, 1, 0, 0, 4, 64],
            vec![var, of(14, 0), 5, 0],
            vec![section, of(DATASEC, 1), 520, 6, 256, 264],
        ]
        .concat();
        file(&words, &strings)
    }

    /// A structure: its name, its size, and its members by name with their offsets.
    type Structure<'a> = (&'a str, u32, &'a [(&'a str, u32)]);

    /// Returns structures whose members are words.
    pub(in crate::recording) fn structures(all: &[Structure<'_>]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut text = |name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            at
        };
        let mut words = vec![text("long"), 1 << 24, 8, 0];
        for (name, size, members) in all {
            words.extend([text(name), STRUCT << 24 | members.len() as u32, *size]);
            for (member, offset) in *members {
                words.extend([text(member), 1, offset * 8]);
            }
        }
        file(&words, &strings)
    }

    fn file(words: &[u32], strings: &[u8]) -> Vec<u8> {
        let bytes = words.len() as u32 * 4;
        let mut all = MAGIC.to_le_bytes().to_vec();
        all.extend([1, 0]);
        for word in [24, 0, bytes, bytes, strings.len() as u32] {
            all.extend(word.to_le_bytes());
        }
        words.iter().for_each(|word| all.extend(word.to_le_bytes()));
        all.extend(strings);
        all
    }

    #[test]
    fn a_place_is_the_innermost_large_structure_and_its_member() {
        let btf = Btf::parse(&types()).unwrap();
        let place = |offset| {
            let place = btf.place("outer", offset)?;
            Some(format!("{} {}", place.structure, place.member))
        };
        assert_eq!(place(0).as_deref(), Some("outer a"));
        assert_eq!(place(8 + 128 + 64).as_deref(), Some("big list"));
        assert_eq!(place(8).as_deref(), Some("big lock"));
        assert_eq!(btf.offset_of("big", "list"), Some(64));
        assert_eq!((btf.size_of("outer"), btf.has("var")), (Some(264), false));
        assert_eq!(btf.per_cpu(256 + 8).unwrap().structure, "big");
        assert_eq!(btf.per_cpu(255), None);
    }

    #[test]
    fn types_that_are_cut_or_foreign_are_none() {
        let all = types();
        for length in 0..all.len() {
            // Some cuts leave whole types; none is a panic.
            let _ = Btf::parse(&all[..length]);
        }
        assert!(Btf::parse(&all[..20]).is_none() && Btf::parse(&[0; 64]).is_none());
    }
}
