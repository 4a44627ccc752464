//! What must be known of the experiment as a whole.

use horolog_record::{Code, Finding, RelayCell, RelayDirect, Severity};

use crate::output;

/// A source that sends more than this share of what it sends without a relay is itself the limit.
const SOURCE_SHARE: f64 = 0.8;

pub(super) fn all(
    cells: &[RelayCell],
    direct: &[RelayDirect],
    is_spoiled: bool,
    cores: usize,
) -> Vec<Finding> {
    let finding = |code, severity, message: String, advice: &str| Finding {
        code,
        severity,
        message,
        advice: advice.to_owned(),
        trial: None,
    };
    let shared = finding(
        Code::SharedMachine,
        Severity::Note,
        format!(
            "source, relay and receivers shared the {cores} cores of this machine; below the host \
             copies are made and received on the cores that send, so a total is what these do with \
             all three"
        ),
        "compare the engines with one another, and the processor time of a copy",
    );
    let is_limited = |cell: &&RelayCell| is_source_limited(cell, direct);
    let names: Vec<_> = cells.iter().filter(is_limited).map(name).collect();
    let of_source = (!names.is_empty()).then(|| {
        let message = format!("the source sent about all that it can at {}", names.join("; "));
        finding(
            Code::GeneratorLimit,
            Severity::Warning,
            message,
            "take these totals for the source's: the relay holds more",
        )
    });
    let silent = |cell: &&RelayCell| !cell.rounds.is_empty() && cell.copies_per_s().is_none();
    let names: Vec<_> = cells.iter().filter(silent).map(name).collect();
    let lossy = (!names.is_empty()).then(|| {
        let message = format!("copies were lost at any rate at {}", names.join("; "));
        finding(Code::PathLoss, Severity::Warning, message, "see what 'horolog relay list' counts")
    });
    let wrong = is_spoiled.then(|| {
        let message = "some copies were not what they should be: damaged, or twice in place of \
                       another"
            .to_owned();
        finding(Code::CountsDisagree, Severity::Error, message, "trust none of these figures")
    });
    let interrupted = output::flow().is_break().then(|| {
        let message = "the experiment was ended before it was through".to_owned();
        finding(Code::Interrupted, Severity::Warning, message, "what is missing was not measured")
    });
    let doubts = [of_source, lossy, wrong, interrupted].into_iter().flatten();
    [shared].into_iter().chain(doubts).collect()
}

fn name(cell: &RelayCell) -> String {
    let RelayCell { size_bytes, children, engine, .. } = cell;
    let plural = if *children == 1 { "child" } else { "children" };
    format!("{}, {size_bytes} B, {children} {plural}", engine.name())
}

/// Whether the source sent about what it sends with nobody between.
fn is_source_limited(cell: &RelayCell, direct: &[RelayDirect]) -> bool {
    let alone = direct.iter().find(|direct| direct.size_bytes == cell.size_bytes);
    let packets = cell.copies_per_s().map(|copies| copies / cell.children as f64);
    alone.zip(packets).is_some_and(|(alone, packets)| {
        let share = cell.source_threads as f64 / alone.source_threads as f64;
        packets > alone.rate * share * SOURCE_SHARE
    })
}
