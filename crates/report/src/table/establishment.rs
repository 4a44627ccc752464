//! What a load on a server for NTS key establishment comes to, as lines of text.

use horolog_record::EstablishmentResult;

use super::TableStyle;
use super::grid::Tone;
use super::summary::{finding_lines, limit_lines};
use crate::units::{full_count, human_ns, human_rate};

/// A line for each trial, a line for its times, and the findings; no newline at the end.
#[must_use]
pub fn establishment(result: &EstablishmentResult, style: &TableStyle) -> String {
    let mut lines = Vec::new();
    for trial in &result.trials {
        let line = format!(
            "Key establishments: {} by {} clients; {} of {} failed.",
            human_rate(trial.achieved_rate),
            full_count(trial.clients),
            full_count(trial.lost),
            full_count(trial.sent)
        );
        lines.push(Tone::Strong.paint(&line, style.colour));
        lines.extend(trial.handshake_ns.as_ref().map(|times| {
            let [p50, p90, p99, max] = [times.p50, times.p90, times.p99, times.max].map(human_ns);
            format!("From connecting to the keys: p50 {p50}, p90 {p90}, p99 {p99}, max {max}.")
        }));
        lines.extend(trial.failures.iter().map(|(reason, count)| {
            format!("Failed for {}: {}.", format!("{reason:?}").to_lowercase(), full_count(*count))
        }));
    }
    lines.extend(limit_lines(&result.limits, style));
    lines.extend(finding_lines(&result.findings, style));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use horolog_record::{EstablishmentTrial, FailureReason, LOAD_SCHEMA, Mode};

    use super::*;
    use crate::fixture;

    #[test]
    fn looks_like_this() {
        let load = fixture::load();
        let result = EstablishmentResult {
            schema: LOAD_SCHEMA.to_owned(),
            started: load.started,
            command: Vec::new(),
            host: load.host,
            target: load.target,
            mode: Mode::NtsKe,
            trials: vec![EstablishmentTrial {
                achieved_rate: 1234.5,
                duration_s: 2.0,
                clients: 32,
                sent: 2_475,
                received: 2_469,
                lost: 6,
                failures: BTreeMap::from([(FailureReason::Timeout, 6)]),
                handshake_ns: None,
            }],
            limits: Vec::new(),
            findings: Vec::new(),
        };
        let text = establishment(&result, &TableStyle::default());
        assert_eq!(
            text,
            "Key establishments: 1.23 k/s by 32 clients; 6 of 2,475 failed.\n\
             Failed for timeout: 6."
        );
    }
}
