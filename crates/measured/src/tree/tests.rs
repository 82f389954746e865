//! Trees of known shares.

use super::*;
use crate::text::lines;

fn of(text: &str) -> Vec<(String, f64)> {
    let lines = lines(text);
    let (mut trees, mut at) = (vec![], 0);
    while at < lines.len() {
        match parse(&lines, at) {
            Some(tree) => {
                let start = at;
                at = tree.end;
                trees.push((start, tree));
            }
            None => at += 1,
        }
    }
    let profile = chosen(trees, &lines);
    let stacks = profile.stacks;
    let one = |stack: &Stack| {
        let share = (stack.weight.unwrap() * 10_000.0).round() / 10_000.0;
        (stack.path.join(" "), share)
    };
    stacks.iter().map(one).collect()
}

#[test]
fn shares_of_callees_are_of_their_caller() {
    let tree = "|--90.00%-- oom_reaper\n|  |--50.00%-- unmap_page_range\n\
                |  |  |--40.00%-- __pte_offset_map_lock\n|  |  |  |--100.00%-- _raw_spin_lock\n\
                |  |  |--60.00%-- [hit in function]\n|  |--20.00%-- tlb_finish_mmu\n";
    assert_eq!(
        of(tree),
        [
            ("oom_reaper".to_owned(), 0.27),
            ("oom_reaper unmap_page_range".to_owned(), 0.27),
            ("oom_reaper unmap_page_range __pte_offset_map_lock _raw_spin_lock".to_owned(), 0.18),
            ("oom_reaper tlb_finish_mmu".to_owned(), 0.18),
        ]
    );
}

#[test]
fn shares_may_be_of_all_samples_and_an_only_callee_has_none() {
    let tree = "|--60.00%--do_exit\n|          |--40.00%--exit_mmap\n|          |\n\
                |          |          unmap_vmas\n|           --10.00%--exit_files\n";
    assert_eq!(
        of(tree),
        [
            ("do_exit".to_owned(), 0.1),
            ("do_exit exit_mmap unmap_vmas".to_owned(), 0.4),
            ("do_exit exit_files".to_owned(), 0.1),
        ]
    );
}

#[test]
fn callers_of_a_lock_are_reversed() {
    let tree = "|--80.00%-- _raw_spin_lock\n|  |--100.00%-- folio_lruvec_lock\n";
    assert_eq!(of(tree)[0].0, "folio_lruvec_lock _raw_spin_lock");
}

#[test]
fn the_screen_of_perf_report_is_a_tree() {
    let screen = "- 60.00% unmap_page_range\n   - 40.00% release_pages\n      \
                  - 30.00% folio_lruvec_lock_irqsave\n           \
                  _raw_spin_lock_irqsave\n           \
                  native_queued_spin_lock_slowpath\n   - 10.00% free_unref_folios\n";
    assert_eq!(
        of(screen),
        [
            ("unmap_page_range".to_owned(), 0.1),
            ("unmap_page_range release_pages".to_owned(), 0.1),
            (
                "unmap_page_range release_pages folio_lruvec_lock_irqsave \
                 _raw_spin_lock_irqsave native_queued_spin_lock_slowpath"
                    .to_owned(),
                0.3
            ),
            ("unmap_page_range free_unref_folios".to_owned(), 0.1),
        ]
    );
}

#[test]
fn a_list_has_a_function_a_row() {
    let typed = " 18.10% folio_lruvec_relock_irqsave\n  9.02% free_pcppages_bulk\n  4.21% \
                 down_read\n";
    assert_eq!(
        of(typed),
        [
            ("folio_lruvec_relock_irqsave".to_owned(), 0.181),
            ("free_pcppages_bulk".to_owned(), 0.0902),
            ("down_read".to_owned(), 0.0421),
        ]
    );
    let rows = "    18.10%  app  [kernel.kallsyms]  [k] native_queued_spin_lock_slowpath\n     \
                9.50%  9.02%  app  [kernel]  [k] free_pcppages_bulk\n";
    assert_eq!(of(rows), [], "a profile without callers has no paths");
}

#[test]
fn prose_is_no_tree() {
    for text in [
        "-- \n2.17.1",
        "a 50%-- b",
        "|--99%--",
        "|--x%-- y\n|--1%-- z",
        "9 % of it\n5 % more",
        "50% faster\n20% slower",
        "90% of do_exit, 5% of it",
    ] {
        assert!(parse(&lines(text), 0).is_none(), "{text}");
    }
}

#[test]
fn shares_of_more_than_their_caller_are_scaled() {
    // `perf top` of 2014: samples decay, so that callees have more than their caller.
    let row = "     2.00%     2.00%  [kernel]     [k] _raw_spin_lock\n          |\n          \
               --- _raw_spin_lock\n             |\n             ";
    let of = |rows: &str| of(&format!("{row}{rows}"));
    let path = |name: &str| format!("{name} _raw_spin_lock");
    assert_eq!(of("|--107.09%-- mem_x\n"), [(path("mem_x"), 0.02)]);
    let two = "|--75.00%-- mem_x\n             |--50.00%-- mem_y\n";
    assert_eq!(of(two), [(path("mem_x"), 0.012), (path("mem_y"), 0.008)]);
}

#[test]
fn a_reply_may_be_between_the_branches_of_a_quoted_tree() {
    let head = ">      5.00%  qemu  [kernel]  [k] _raw_spin_lock\n>            |\n\
                >            --- _raw_spin_lock\n>               |\n\
                >               |--40.00%-- tdp_page_fault\n";
    let rest = ">               |--2.00%-- free_pcppages_bulk\n";
    let whole = of(&format!("{head}{rest}"));
    assert_eq!(whole.len(), 3, "{whole:?}");
    assert!(whole.contains(&("free_pcppages_bulk _raw_spin_lock".to_owned(), 0.001)));
    let split = of(&format!("{head}\nNothing of interest until...\n\n{rest}"));
    assert_eq!(split, whole);
    // Without a quote the second part has lost its row: its shares are of an unknown caller.
    let plain = format!("{head}>\n> Nothing of interest\n>\n{rest}").replace("> ", "  ");
    let known = of(&plain.replace('>', " "));
    assert!(!known.iter().any(|(path, _)| path.contains("free_pcppages_bulk")), "{known:?}");
}
