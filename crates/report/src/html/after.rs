//! The page of a wait: how it ended, and what became of each thing that was waited for.

use horolog_record::{AfterEnd, AfterResult, Dependency};

use super::Page;
use super::data::{headed, row};
use super::escape::each;
use super::sections::{findings, machine, section, verdict};
use crate::table::after::{end, kind_name, time};
use crate::units::{ABSENT, full_count};

const TITLES: [&str; 5] = ["kind", "held after", "tries", "lost", "last seen"];

/// The page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn after(result: &AfterResult) -> String {
    let rows = each(&result.dependencies, |one| row(&one.target, cells(one)));
    let name = match result.end {
        AfterEnd::Held => "All held after",
        AfterEnd::Deadline => "The deadline passed after",
        AfterEnd::Interrupted => "Ended by a signal after",
    };
    let main = [
        section("Findings", &findings(&result.findings)),
        section("What was waited for", &headed("waits", "Waits", ("for", &TITLES), &rows)),
        section("Run and machine", &machine(&result.command, &result.started, &result.host)),
    ];
    Page {
        kind: "after",
        failed: None,
        heading: if result.program.is_empty() {
            "a wait".to_owned()
        } else {
            format!("{} after a wait", result.program.join(" "))
        },
        lead: format!("started {}", result.started),
        verdict: verdict(name, &time(result.waited_ns), &end(result), &[]),
        main: main.concat(),
        note: "Times are from the beginning of the wait.",
        schema: &result.schema,
        plots: Vec::new(),
        result,
    }
    .render()
}

fn cells(one: &Dependency) -> [String; 5] {
    [
        kind_name(one.kind).to_owned(),
        one.held_after_ns.map_or_else(|| ABSENT.to_owned(), time),
        full_count(one.tries),
        full_count(one.lost),
        one.seen.clone().unwrap_or_else(|| "the first try has not ended".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn what_was_waited_for_is_shown_and_becomes_no_markup() {
        let mut result = fixture::after();
        result.dependencies[0].target = "<img src=x>".to_owned();
        let page = after(&result);
        let main = main_of(&page);
        assert!(main.contains("&lt;img src=x&gt;") && main.contains("did not hold"), "{main}");
        result.dependencies.clear();
        assert!(main_of(&after(&result)).contains("Run and machine"));
    }
}
