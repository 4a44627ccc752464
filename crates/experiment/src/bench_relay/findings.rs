//! Findings on the whole relay benchmark.

use horolog_record::{Finding, FindingCode, NoRelayBaseline, RelayConfigurationResult, Severity};

/// Share of the source's highest rate above which the source, and not the relay, counts as the
/// limit.
const SOURCE_SHARE_MAX: f64 = 0.8;
/// Share of the host's CPU time used by other programs above which a finding reports them.
const OTHER_PROGRAMS_SHARE_MAX: f64 = 0.05;

/// Events during the benchmark that are reported as findings.
#[derive(Debug, Default)]
pub(super) struct RelayBenchEvents {
    /// True if some copy had the wrong length, or was a duplicate in place of a missing one.
    pub(super) has_wrong_copies: bool,
    /// Configuration whose relay exited by itself, and the reason; `None` if none did.
    pub(super) relay_exit: Option<String>,
    /// Largest share of the host's CPU time that other programs used during a repetition, by the
    /// name of the configuration; only shares above the limit.
    other_program_shares: Vec<(String, f64)>,
}

impl RelayBenchEvents {
    /// Records the share of the host's CPU time that other programs used during a repetition, if it
    /// is above the limit.
    pub(super) fn record_other_programs(&mut self, cell: &RelayConfigurationResult, share: f64) {
        if share <= OTHER_PROGRAMS_SHARE_MAX {
            return;
        }
        let name = configuration_name(cell);
        match self.other_program_shares.iter_mut().find(|(other, _)| *other == name) {
            Some((_, most)) => *most = most.max(share),
            None => self.other_program_shares.push((name, share)),
        }
    }

    /// Records that the relay of a configuration exited by itself, with its last line of output.
    pub(super) fn record_relay_exit(&mut self, cell: &RelayConfigurationResult, last_words: &str) {
        self.relay_exit = Some(format!("{}: {last_words}", configuration_name(cell)));
    }

    fn other_programs_finding(&self) -> Option<Finding> {
        let most = self.other_program_shares.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let names: Vec<_> =
            self.other_program_shares.iter().map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| {
            let message = format!(
                "other programs used up to {:.0}% of this host's CPU time at {}",
                most * 100.0,
                names.join("; ")
            );
            let advice = "these totals are too low; measure again on an idle host";
            finding(FindingCode::TrialsInconsistent, Severity::Warning, message, advice)
        })
    }
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

pub(super) fn relay_findings(
    cells: &[RelayConfigurationResult],
    baselines: &[NoRelayBaseline],
    events: &RelayBenchEvents,
    cores: usize,
    is_interrupted: bool,
) -> Vec<Finding> {
    let shared = finding(
        FindingCode::SharedMachine,
        Severity::Note,
        format!(
            "source, relay and receivers shared the {cores} cores of this host; in-kernel copies \
             are made and received on the sending cores, so a total includes all three"
        ),
        "compare the engines with one another, and the CPU time per copy",
    );
    let is_limited = |cell: &&RelayConfigurationResult| is_source_limited(cell, baselines);
    let names: Vec<_> = cells.iter().filter(is_limited).map(configuration_name).collect();
    let of_source = (!names.is_empty()).then(|| {
        let message = format!("the source was near its maximum rate at {}", names.join("; "));
        finding(
            FindingCode::GeneratorLimit,
            Severity::Warning,
            message,
            "these totals are the limit of the source; the relay can do more",
        )
    });
    let is_lossy = |cell: &&RelayConfigurationResult| {
        !cell.repetitions.is_empty() && cell.copies_per_s().is_none()
    };
    let names: Vec<_> = cells.iter().filter(is_lossy).map(configuration_name).collect();
    let lossy = (!names.is_empty()).then(|| {
        let message = format!("copies were lost at every rate at {}", names.join("; "));
        finding(
            FindingCode::PathLoss,
            Severity::Warning,
            message,
            "see the counters of 'horolog relay list'",
        )
    });
    let wrong = events.has_wrong_copies.then(|| {
        let message =
            "some copies were wrong: damaged, or duplicated instead of another".to_owned();
        finding(FindingCode::CountsDisagree, Severity::Error, message, "discard these results")
    });
    let interrupted = is_interrupted.then(|| {
        let message = "the experiment was ended early".to_owned();
        finding(
            FindingCode::Interrupted,
            Severity::Warning,
            message,
            "missing values were not measured",
        )
    });
    let ended = events.relay_exit.as_ref().map(|relay| {
        let message = format!("a relay exited, which ended the experiment: {relay}");
        let advice = "missing values were not measured; the others are valid";
        finding(FindingCode::EngineFailed, Severity::Error, message, advice)
    });
    let findings = [of_source, lossy, events.other_programs_finding(), wrong, ended, interrupted]
        .into_iter()
        .flatten();
    [shared].into_iter().chain(findings).collect()
}

/// Returns the name of a configuration in messages, such as "xdp, 64 B, 8 children".
pub(super) fn configuration_name(cell: &RelayConfigurationResult) -> String {
    let RelayConfigurationResult { size_bytes, children, engine, .. } = cell;
    let plural = if *children == 1 { "child" } else { "children" };
    format!("{}, {size_bytes} B, {children} {plural}", engine.name())
}

/// Returns true if the source was near its highest rate, scaled to the number of its threads, so
/// that the relay may not be the limit.
fn is_source_limited(cell: &RelayConfigurationResult, baselines: &[NoRelayBaseline]) -> bool {
    let baseline = baselines.iter().find(|direct| direct.size_bytes == cell.size_bytes);
    let packets = cell.copies_per_s().map(|copies| copies / cell.children as f64);
    baseline.zip(packets).is_some_and(|(baseline, packets)| {
        let share = cell.source_threads as f64 / baseline.source_threads as f64;
        packets > baseline.rate * share * SOURCE_SHARE_MAX
    })
}

#[cfg(test)]
mod tests {
    use horolog_record::RelayEngineKind;

    use super::*;

    fn cell(children: usize) -> RelayConfigurationResult {
        RelayConfigurationResult {
            size_bytes: 64,
            children,
            engine: RelayEngineKind::Send,
            source_threads: 1,
            batch: 1,
            relay_command: Vec::new(),
            repetitions: Vec::new(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    fn found(events: &RelayBenchEvents, code: FindingCode) -> Option<Finding> {
        relay_findings(&[], &[], events, 2, false).into_iter().find(|finding| finding.code == code)
    }

    #[test]
    fn finding_on_other_programs_has_their_largest_share() {
        let mut events = RelayBenchEvents::default();
        events.record_other_programs(&cell(1), 0.04);
        assert_eq!(found(&events, FindingCode::TrialsInconsistent), None);
        for (children, share) in [(2, 0.1), (4, 0.3), (2, 0.2), (4, 0.06)] {
            events.record_other_programs(&cell(children), share);
        }
        let message = found(&events, FindingCode::TrialsInconsistent).unwrap().message;
        assert!(message.contains("up to 30%"), "{message}");
        assert!(message.ends_with("send, 64 B, 2 children; send, 64 B, 4 children"), "{message}");
    }

    #[test]
    fn a_relay_that_ended_is_an_error_with_its_last_words() {
        let mut events = RelayBenchEvents::default();
        assert_eq!(found(&events, FindingCode::EngineFailed), None);
        events.record_relay_exit(&cell(1), "no memory");
        let finding = found(&events, FindingCode::EngineFailed).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.message.ends_with("send, 64 B, 1 child: no memory"), "{finding:?}");
    }
}
