//! Where the guide tells of the mistake behind a failure: a heading under "Where backends go wrong" for every check.

use crate::{Area, Check};

/// The guide for vendors.
const PAGE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/new-backend.md");

/// Headings, each with parts of the names of its checks. The first that has a part of a name counts.
#[rustfmt::skip]
const BY_NAME: &[(&str, &[&str])] = &[
    ("The limits are passed", &["within_limit", "within_57_bits"]),
    ("A capture takes part in the world", &["capture."]),
    ("Priorities are upside down", &["priorit"]),
    ("A handle is taken for another", &[
        "foreign", "handle_names", "handle_is_not", "handles_differ", "event_is_its_own",
        "query_is_of_its",
    ]),
    ("The current device moves", &[
        "current_device", "device.current", "device.set_", "device.guard", "leaves_the_device",
        "a_new_thread_works",
    ]),
    ("A device is there that is not", &["unknown_device", "unknown_is_refused", "no_such_device", "device.count"]),
    ("`malloc(0)` succeeds", &[
        "malloc_of_nothing", "copies.of_nothing", "fill_of_nothing", "queued_of_nothing", "copy_of_nothing",
        "register_nothing", "sizes_are_positive",
    ]),
    ("`free(null)` fails", &[
        "free_null", "free_twice", "free_inside", "free_unknown", "refused_free", "unregister_", "wrong_pointers",
    ]),
    ("Out of memory is not out of memory", &[
        "more_than_there_is", "absurd_sizes", "out_of_memory", "oom_", "no_retry", "refused_malloc", "after_refusal",
    ]),
    ("The figures do not add up", &[
        "memory.info_", "total_", "properties_have_memory", "memory_comes_back", "takes_no_memory",
    ]),
    ("\"Not ready\" is an error", &["leaves_no_error", "clear", "leave_the_device_usable"]),
    ("A call waits that must not", &["does_not_block", "does_not_wait", "while_another_waits"]),
    ("`destroy_stream` waits, or loses work", &["destroy"]),
    ("Records across devices", &["events.of_other_device", "refused_record", "record_on_second"]),
    ("A wait follows the event", &["ordering.wait", "ordering.later", "record_again", "record_elsewhere", "reuse_waits"]),
    ("Work is done too early", &[
        "synchronize", "ready", "busy", "early", "ordering.", "later_work", "when_reached", "in_order", "_ordered",
        "pending", "is_waited_for",
    ]),
    ("An unknown address is an error", &[
        "pointer_info", "memory.range", "unmanaged", "has_no_range", "pointer_is_known",
    ]),
    ("Memory is not what was asked for", &[
        "aligned", "disjoint", "large_enough", "last_byte", "single_byte", "nothing_beyond", "neighbours",
        "keeps_its_bytes", "not_null", "of_the_device_asked",
    ]),
];

/// The heading for what no name tells.
const fn of_area(area: Area) -> &'static str {
    match area {
        Area::Device => "What a device says of itself",
        Area::Memory | Area::Copies | Area::Host => "Bytes go astray",
        Area::Streams => "Streams stand in each other's way",
        Area::Events | Area::Ordering => "Work is done too early",
        Area::Errors => "An error says too little",
        Area::Threads => "A thread is not like another",
        Area::VirtualMemory => "Virtual memory is not like memory",
        Area::Ipc => "Another process holds on",
        Area::Peers => "A peer is reached by half",
        Area::Capture => "A capture takes part in the world",
        Area::Families => "A family is offered in part",
        Area::Engine => "The allocator finds what the checks did not",
    }
}

fn heading(check: &Check) -> &'static str {
    let named = BY_NAME.iter().find(|(_, parts)| parts.iter().any(|part| check.name.contains(part)));
    named.map_or_else(|| of_area(check.area), |(heading, _)| *heading)
}

/// The link to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Where the guide tells of what breaks this rule.
pub(crate) fn link(check: &Check) -> String {
    format!("{PAGE}#{}", anchor(heading(check)))
}

#[cfg(test)]
mod tests {
    use super::{anchor, heading, link};
    use crate::checks;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_paragraph_and_every_paragraph_a_check() {
        let guide = include_str!("../../../../docs/new-backend.md");
        let (_, wrong) = guide.split_once("\n## Where backends go wrong\n").unwrap();
        let section = wrong.split("\n## ").next().unwrap();
        let there: BTreeSet<&str> = section.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        let linked: BTreeSet<&str> = checks::all().map(heading).collect();
        assert_eq!(linked, there);
    }

    #[test]
    fn links_are_the_pages_own() {
        assert_eq!(anchor("`malloc(0)` succeeds"), "malloc0-succeeds");
        assert_eq!(anchor("\"Not ready\" is an error"), "not-ready-is-an-error");
        let check = checks::all().find(|check| check.name == "memory.aligned").unwrap();
        let due = "/blob/main/docs/new-backend.md#memory-is-not-what-was-asked-for";
        assert!(link(check).ends_with(due), "{}", link(check));
    }
}
