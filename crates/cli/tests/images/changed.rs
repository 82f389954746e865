//! A change of a kernel's code is found, named and has its size.

use crate::{IMAGE, is_absent, kernel, skipped, stderr};
use mmscale_vm::Image;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};
use serde_json::Value;

/// A function that runs once for each folio, with the LRU lock held.
const CHANGED: &str = "lru_gen_add_folio";
/// Rounds of the loop that is added: two instructions each.
const ROUNDS: u32 = 17;
/// Instructions around the loop: a jump to it, a push, a move, a pop, a jump back.
const AROUND: u32 = 5;

/// Counts instructions of an image for one script; `None` without QEMU or the package.
fn counted(image: &str) -> Option<Value> {
    let mut command = kernel(&["instructions", "--kernel", image, "--cpus", "2"]);
    let output = command.args(["--format", "json"]).output().unwrap();
    let said = stderr(&output);
    if is_absent(&said) {
        skipped("a changed kernel", &said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let scripts = document["scripts"].as_array().unwrap();
    scripts.iter().find(|script| script["name"] == "touch").map(|s| s["operations"][0].clone())
}

fn function<'a>(operation: &'a Value, name: &str) -> &'a Value {
    let functions = operation["functions"].as_array().unwrap();
    functions.iter().find(|function| function["name"] == name).unwrap()
}

/// Instructions an operation with the LRU lock held by a batch of new folios.
fn lru_hold(operation: &Value) -> f64 {
    let holds = operation["holds"].as_array().unwrap().iter();
    let of_batch = holds.filter(|hold| hold["outer"] == "folio_batch_move_lru");
    of_batch.map(|hold| hold["instructions"].as_f64().unwrap()).sum()
}

/// Returns the place in the file of an address.
fn offset_of(bytes: &[u8], address: u64) -> usize {
    let file = ElfFile64::<Endianness>::parse(bytes).unwrap();
    let endian = file.endian();
    let header = file
        .elf_program_headers()
        .iter()
        .find(|header| {
            let from = header.p_vaddr(endian);
            header.p_type(endian) == elf::PT_LOAD
                && (from..from + header.p_filesz(endian)).contains(&address)
        })
        .expect("the address is loaded");
    (address - header.p_vaddr(endian) + header.p_offset(endian)) as usize
}

/// Returns the bytes of whole instructions at the begin of a function, five at least, that do not
/// depend on their place: pushes and moves between registers.
fn prologue(code: &[u8]) -> usize {
    let mut at = 0;
    while at < 5 {
        at += match code[at..] {
            [0x50..=0x57, ..] => 1,
            [0x41, 0x50..=0x57, ..] => 2,
            [0x48..=0x4f, 0x89 | 0x8b | 0x31 | 0x85, 0xc0..=0xff, ..] => 3,
            [0x41 | 0x44 | 0x45, 0x31 | 0x89 | 0x85, 0xc0..=0xff, ..] => 3,
            [0x31 | 0x89 | 0x85, 0xc0..=0xff, ..] => 2,
            [0x48 | 0x49 | 0x4c, 0x8b, 0x40..=0x7f, ..] => 4,
            _ => panic!("another prologue: {:02x?}", &code[at..at + 16]),
        };
    }
    at
}

/// Adds a loop to the begin of a function of a kernel, in a hole of its code.
fn changed(mut bytes: Vec<u8>, address: u64) -> Vec<u8> {
    let mut from = address;
    let code = |bytes: &[u8], at: u64| bytes[offset_of(bytes, at)..][..32].to_vec();
    if code(&bytes, from).starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        from += 4;
    }
    // The kernel changes a call of tracers when it boots.
    if code(&bytes, from)[0] == 0xe8 {
        from += 5;
    }
    let moved = code(&bytes, from);
    let moved = moved[..prologue(&moved)].to_vec();
    let mut added = vec![0x51, 0xb9];
    added.extend(ROUNDS.to_le_bytes());
    added.extend([0xff, 0xc9, 0x75, 0xfc, 0x59]);
    added.extend(&moved);
    // The hole: the filling behind the last function, at most some MiB away.
    let place = offset_of(&bytes, address);
    let filled = vec![0xcc; added.len() + 5];
    let hole = bytes[place..].windows(filled.len()).position(|part| part == filled);
    let hole = hole.expect("the code has a hole") as u64;
    let relative = |from: u64, to: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
    let back = address + hole + added.len() as u64 + 5;
    added.push(0xe9);
    added.extend(relative(back, from + moved.len() as u64));
    bytes[place + hole as usize..][..added.len()].copy_from_slice(&added);
    let jump = offset_of(&bytes, from);
    bytes[jump..][..moved.len()].fill(0x90);
    bytes[jump] = 0xe9;
    bytes[jump + 1..][..4].copy_from_slice(&relative(from + 5, address + hole));
    bytes
}

#[test]
#[ignore = "boots two kernels in an emulator"]
fn a_loop_under_the_lru_lock_is_found_with_its_size() {
    let Some(before) = counted(IMAGE) else { return };
    let address = function(&before, CHANGED)["address"].as_str().unwrap();
    let address = u64::from_str_radix(address, 16).unwrap();
    let image = Image::open(IMAGE, &|_| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vmlinux");
    std::fs::write(&path, changed(image.bytes().to_vec(), address)).unwrap();
    let after = counted(path.to_str().unwrap()).unwrap();

    let added = f64::from(2 * ROUNDS + AROUND);
    let own = |operation| function(operation, CHANGED)["call"]["median"].as_f64().unwrap();
    assert_eq!(own(&after) - own(&before), added);
    let hold = lru_hold(&after) - lru_hold(&before);
    assert!((hold - added).abs() < 0.5, "{hold} of {added}");
    let all = |operation: &Value| operation["instructions"]["median"].as_f64().unwrap();
    let all = all(&after) - all(&before);
    assert!((all - added).abs() < 2.0, "{all} of {added}");
}
