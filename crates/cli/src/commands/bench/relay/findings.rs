//! What must be known of the experiment as a whole.

use horolog_record::{Code, Finding, RelayCell, RelayDirect, Severity};

use crate::output;

/// A source that sends more than this share of what it sends without a relay is itself the limit.
const SOURCE_SHARE: f64 = 0.8;
/// Other programs that take more than this share of the machine's time lower what is found.
const OTHERS_MAX: f64 = 0.05;

/// What happened on the way to the figures.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Some copy was not what it should be.
    pub(super) is_spoiled: bool,
    /// The relay that ended by itself, and what it said last.
    pub(super) relay_ended: Option<String>,
    /// Shares of the machine's time that other programs took while cells were measured, by name.
    others: Vec<(String, f64)>,
}

impl Events {
    /// Notes the share of the machine's time that other programs took during a round of a cell.
    pub(super) fn note_others(&mut self, cell: &RelayCell, share: f64) {
        if share <= OTHERS_MAX {
            return;
        }
        let name = name(cell);
        match self.others.iter_mut().find(|(other, _)| *other == name) {
            Some((_, most)) => *most = most.max(share),
            None => self.others.push((name, share)),
        }
    }

    /// Notes that the relay of a cell ended by itself.
    pub(super) fn note_end(&mut self, cell: &RelayCell, last_words: &str) {
        self.relay_ended = Some(format!("{}: {last_words}", name(cell)));
    }

    fn doubt(&self) -> Option<Finding> {
        let most = self.others.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let names: Vec<_> = self.others.iter().map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| {
            let message = format!(
                "other programs took up to {:.0}% of this machine's time at {}",
                most * 100.0,
                names.join("; ")
            );
            let advice = "take these totals for too low; measure again while nothing else runs";
            finding(Code::Noisy, Severity::Warning, message, advice)
        })
    }
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

pub(super) fn all(
    cells: &[RelayCell],
    direct: &[RelayDirect],
    events: &Events,
    cores: usize,
) -> Vec<Finding> {
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
    let wrong = events.is_spoiled.then(|| {
        let message = "some copies were not what they should be: damaged, or twice in place of \
                       another"
            .to_owned();
        finding(Code::CountsDisagree, Severity::Error, message, "trust none of these figures")
    });
    let interrupted = output::flow().is_break().then(|| {
        let message = "the experiment was ended before it was through".to_owned();
        finding(Code::Interrupted, Severity::Warning, message, "what is missing was not measured")
    });
    let ended = events.relay_ended.as_ref().map(|relay| {
        let message = format!("a relay ended by itself, and the experiment with it: {relay}");
        let advice = "what is missing was not measured; what is there stands";
        finding(Code::EngineFailed, Severity::Error, message, advice)
    });
    let doubts =
        [of_source, lossy, events.doubt(), wrong, ended, interrupted].into_iter().flatten();
    [shared].into_iter().chain(doubts).collect()
}

/// What a cell is of.
pub(super) fn name(cell: &RelayCell) -> String {
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

#[cfg(test)]
mod tests {
    use horolog_record::RelayEngine;

    use super::*;

    fn cell(children: usize) -> RelayCell {
        RelayCell {
            size_bytes: 64,
            children,
            engine: RelayEngine::Send,
            source_threads: 1,
            batch: 1,
            relay_command: Vec::new(),
            rounds: Vec::new(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    fn found(events: &Events, code: Code) -> Option<Finding> {
        all(&[], &[], events, 2).into_iter().find(|finding| finding.code == code)
    }

    #[test]
    fn other_programs_are_told_of_with_the_most_that_they_took() {
        let mut events = Events::default();
        events.note_others(&cell(1), 0.04);
        assert_eq!(found(&events, Code::Noisy), None);
        for (children, share) in [(2, 0.1), (4, 0.3), (2, 0.2), (4, 0.06)] {
            events.note_others(&cell(children), share);
        }
        let said = found(&events, Code::Noisy).unwrap().message;
        assert!(said.contains("up to 30%"), "{said}");
        assert!(said.ends_with("send, 64 B, 2 children; send, 64 B, 4 children"), "{said}");
    }

    #[test]
    fn a_relay_that_ended_is_an_error_with_its_last_words() {
        let mut events = Events::default();
        assert_eq!(found(&events, Code::EngineFailed), None);
        events.note_end(&cell(1), "no memory");
        let finding = found(&events, Code::EngineFailed).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.message.ends_with("send, 64 B, 1 child: no memory"), "{finding:?}");
    }
}
