//! The conformance suite: what the manual pages say of the calls of [`System`], checked on any
//! implementation: simulated, on real threads, the live kernel.
//!
//! A case is a program that panics where the system behaves differently. It runs as a process of
//! its own, starts without mappings of its own, and leaves nothing behind. Where manual pages leave
//! a choice, a case accepts all of it. Contents are checked throughout: what was written is read
//! back, and new memory reads as zeros.

mod advise;
mod disk;
mod file;
mod lock;
mod map;
mod process;
mod protect;
mod release;
mod remap;
mod remote;

use mmscale_system::{Addr, Backing, Errno, MapSpec, PAGE_BYTES, Place, Share, System};

/// One statement of the manual pages.
pub struct Case<S> {
    /// The statement, as a name.
    pub name: &'static str,
    /// Checks it; panics if it does not hold.
    pub run: fn(&S),
}

macro_rules! cases {
    ($($module:ident { $($name:ident)* })*) => {
        /// Returns all cases.
        pub fn cases<S: System>() -> Vec<Case<S>> {
            vec![$($(Case {
                name: concat!(stringify!($module), "::", stringify!($name)),
                run: $module::$name::<S>,
            },)*)*]
        }
    };
}

cases! {
    map {
        memory_is_zero_and_keeps_what_is_written
        populated_memory_is_there_and_zero
        lengths_round_up_and_nothing_is_refused
        fixed_replaces_and_free_does_not
        hints_are_taken_where_there_is_room
        unmapping_a_hole_is_no_error
        unmapping_the_middle_leaves_both_ends
        unaligned_addresses_are_refused
        memory_that_was_unmapped_is_zero_when_it_comes_back
        too_much_is_refused
        the_lowest_and_the_last_page_are_refused
        mincore_tells_what_is_there
        zoneinfo_can_be_read_at_any_time
    }
    protect {
        reading_is_allowed_and_writing_is_not
        nothing_is_allowed_until_it_is_again
        a_hole_ends_it_and_what_comes_before_is_changed
        a_part_can_differ_from_the_rest
    }
    remap {
        shrinking_cuts_the_end_off
        growing_adds_zeros
        growing_where_there_is_no_room_needs_leave_to_move
        moving_carries_the_content
        moving_onto_something_replaces_it
        moving_onto_itself_is_refused
        an_unmapped_range_cannot_be_moved
        what_is_left_behind_is_empty
        no_size_is_no_mapping
    }
    advise {
        dontneed_gives_zeros
        free_gives_the_old_content_or_zeros
        what_is_written_after_free_stays
        cold_and_pageout_keep_the_content
        populating_brings_pages_in
        populating_what_may_not_be_written_is_refused
        holes_are_told_of_and_the_rest_is_done
        locked_memory_does_not_go
        huge_pages_keep_the_content
        nothing_to_collapse_is_no_memory
        advice_about_use_keeps_the_content
        no_bytes_are_no_error
    }
    lock {
        locked_memory_is_there
        the_limit_holds
        a_hole_cannot_be_locked
        munlock_lets_go
        binding_moves_pages_and_keeps_the_content
        an_unknown_node_is_refused
    }
    file {
        what_is_written_to_a_shared_mapping_is_seen_in_all
        what_is_written_to_a_private_mapping_stays_there
        a_fork_shares_what_is_shared_and_no_more
        a_new_process_has_the_files
        beyond_the_end_there_is_nothing
        what_is_no_part_of_a_file_is_refused
        advice_for_anonymous_memory_is_refused
        rights_come_and_go
        a_mapping_moves_with_its_part
        mincore_knows_what_the_file_has
        populated_and_locked_mappings_keep_the_content
    }
    disk {
        pages_are_read_when_they_are_needed_and_dropped
        what_is_written_to_a_shared_mapping_is_not_dropped
        what_is_written_to_a_private_mapping_stays_there
        a_page_that_is_mapped_is_not_dropped
        what_was_written_back_can_be_dropped
        tasks_that_need_a_page_at_the_same_time_all_get_it
        a_file_in_memory_takes_no_advice
    }
    process {
        a_child_has_a_copy_and_both_may_change_theirs
        a_new_process_has_nothing
        exec_leaves_nothing_but_files
        exec_is_for_a_single_thread
        threads_share_memory
        memory_advised_so_is_not_inherited
        waiting_is_for_ones_own_children_and_once
        a_killed_process_ends
        a_killed_process_wakes_from_its_sleep
        a_killed_process_waits_no_more
        a_killed_process_stays_killed_over_exec
        grandchildren_keep_the_content_when_the_middle_ends
        locks_are_not_inherited
        the_more_urgent_thread_goes_first
    }
    remote {
        the_content_of_another_process_is_read
        a_copy_is_independent_of_its_origin
        huge_pages_are_read
        a_read_ends_where_a_side_ends
        no_bytes_are_no_error
        a_process_may_read_itself
        the_dead_have_no_memory
        changes_are_seen_whole
        a_process_may_exec_while_it_is_read
        a_dying_process_is_read_and_released
    }
    release {
        the_living_are_not_released
        there_are_no_flags
        the_dying_are_released_until_they_are_gone
        what_was_released_is_not_there
        the_dead_are_gone
        the_children_of_others_are_released_too
        numbers_are_used_again_and_meanings_are_not
    }
}

// -- Helpers of the cases.

const PAGES: u64 = 8;

/// Maps `pages` pages for reading and writing.
fn map<S: System>(system: &S, pages: u64) -> Addr {
    system.mmap(MapSpec::new(pages * PAGE_BYTES)).expect("there is room")
}

/// Maps `pages` pages in the middle of `around` free ones on each side, which stay free.
fn map_apart<S: System>(system: &S, pages: u64, around: u64) -> Addr {
    let whole = map(system, pages + 2 * around);
    let at = whole.page(around);
    unmap(system, whole, pages + 2 * around);
    let spec = MapSpec::new(pages * PAGE_BYTES).at(Place::Fixed(at));
    assert_eq!(system.mmap(spec), Ok(at));
    at
}

fn unmap<S: System>(system: &S, at: Addr, pages: u64) {
    assert_eq!(system.munmap(at, pages * PAGE_BYTES), Ok(()));
}

/// Writes a different word into each page.
fn fill<S: System>(system: &S, at: Addr, pages: u64, seed: u64) {
    for page in 0..pages {
        assert_eq!(system.write(at.page(page), seed + page), Ok(()), "page {page}");
    }
}

/// Checks the words that [`fill`] has written.
fn check<S: System>(system: &S, at: Addr, pages: u64, seed: u64) {
    for page in 0..pages {
        assert_eq!(system.read(at.page(page)), Ok(seed + page), "page {page}");
    }
}

/// Checks for zeros.
fn check_zero<S: System>(system: &S, at: Addr, pages: u64) {
    for page in 0..pages {
        assert_eq!(system.read(at.page(page)), Ok(0), "page {page}");
    }
}

/// Checks that nothing is mapped.
fn check_gone<S: System>(system: &S, at: Addr, pages: u64) {
    for page in 0..pages {
        assert_eq!(system.read(at.page(page)), Err(Errno::Segv), "page {page}");
    }
}

/// A word that a process receives from one that it has forked: a page of a file that both have
/// mapped.
#[derive(Clone, Copy)]
struct Message(Addr);

impl Message {
    fn new<S: System>(system: &S) -> Self {
        let file = system.file(PAGE_BYTES, Backing::Memory).expect("there is memory");
        let spec = MapSpec::new(PAGE_BYTES).of(file, 0, Share::Shared);
        let at = system.mmap(spec).expect("there is room");
        assert_eq!(system.close(file), Ok(()));
        Self(at)
    }
    /// Sends a word that is not 0.
    fn send<S: System>(self, system: &S, word: u64) {
        assert_eq!(system.write(self.0, word), Ok(()));
    }
    /// Waits for the word.
    fn receive<S: System>(self, system: &S) -> u64 {
        loop {
            match system.read(self.0).expect("it is mapped") {
                0 => assert_eq!(system.sleep_ns(250_000), Ok(())),
                word => return word,
            }
        }
    }
    fn forget<S: System>(self, system: &S) {
        unmap(system, self.0, 1);
    }
}
