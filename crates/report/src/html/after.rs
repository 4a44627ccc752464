//! HTML report of a wait: its outcome, and the state of each dependency.

use horolog_record::{AfterEnd, AfterResult, Dependency};

use super::PageTemplate;
use super::data::{headed, row};
use super::escape::each;
use super::sections::{findings, machine, section, verdict};
use crate::table::after::{end, kind_name, time};
use crate::units::{ABSENT, full_count};

const TITLES: [&str; 5] = ["kind", "met after", "tries", "lost", "last check"];

/// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
#[must_use]
pub fn after(result: &AfterResult) -> String {
    let rows = each(&result.dependencies, |one| row(&one.target, cells(one)));
    let name = match result.end {
        AfterEnd::Held => "All met after",
        AfterEnd::Deadline => "Deadline passed after",
        AfterEnd::Interrupted => "Ended by a signal after",
    };
    let main = [
        section("Findings", &findings(&result.findings)),
        section("Conditions", &headed("waits", "Conditions", ("target", &TITLES), &rows)),
        section("Run and host", &machine(&result.command, &result.started, &result.host)),
    ];
    PageTemplate {
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
        note: "Times count from the start of the wait.",
        schema: &result.schema,
        plots: Vec::new(),
        result,
    }
    .render()
}

fn cells(one: &Dependency) -> [String; 5] {
    [
        kind_name(one.kind).to_owned(),
        one.satisfied_after_ns.map_or_else(|| ABSENT.to_owned(), time),
        full_count(one.tries),
        full_count(one.lost),
        one.last_check.clone().unwrap_or_else(|| "first try not finished".to_owned()),
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
        assert!(main.contains("&lt;img src=x&gt;") && main.contains("not met"), "{main}");
        result.dependencies.clear();
        assert!(main_of(&after(&result)).contains("Run and host"));
    }
}
