//! Findings with advice on stalls: one for each pattern that stalled, with the socket options that
//! remedied it in the same run. Pure.

use horolog_record::{
    Finding, FindingCode, Severity, StallMeasurement, StallMechanism, StallSocketOption,
    WatchedTraffic, WritePattern,
};

use super::claims::has_stalled;
use crate::path::format_time;
use crate::path::tcp::finding;

/// Returns findings on the patterns that stalled without a socket option, and on batches that
/// stalled in spite of `TCP_NODELAY`.
pub(super) fn pattern_findings(cells: &[StallMeasurement]) -> Vec<Finding> {
    let mut patterns: Vec<WritePattern> = Vec::new();
    let without_option = cells.iter().filter(|cell| cell.option == StallSocketOption::None);
    for cell in without_option.filter(|cell| has_stalled(cell) == Some(true)) {
        if !patterns.contains(&cell.pattern) {
            patterns.push(cell.pattern);
        }
    }
    let mut findings: Vec<_> =
        patterns.into_iter().filter_map(|pattern| pattern_finding(pattern, cells)).collect();
    findings.extend(window_finding(cells));
    findings
}

const fn pattern_description(pattern: WritePattern) -> &'static str {
    match pattern {
        WritePattern::Single => "A single write in each direction",
        WritePattern::WriteWriteRead => "Two small writes before a read",
        WritePattern::FullSegments => "Two writes of full segments before a read",
        WritePattern::LastWithEnd => "Two small writes, the last of them with FIN,",
        WritePattern::Batch => "Small writes in a row, each answered separately,",
        WritePattern::HeaderAndBody => "A header and a body in two writes",
        WritePattern::HeaderBodyClose => "A header and a body, and a close",
        WritePattern::CorkForgotten => "A cork that is not removed",
    }
}

const fn mechanism_description(mechanism: StallMechanism) -> &'static str {
    match mechanism {
        StallMechanism::NagleDelayedAck => {
            "Nagle's algorithm held data back until an acknowledgement arrived, which the other \
             end delayed"
        }
        StallMechanism::WindowDelayedAck => {
            "the congestion window was full until an acknowledgement arrived, which the other end \
             delayed"
        }
        StallMechanism::Cork => "a cork held data back until the kernel's timer expired",
        StallMechanism::LateAnswer => "the far end had the whole request and replied late",
        StallMechanism::Loss => "segments were lost and retransmitted",
        StallMechanism::Elsewhere => {
            "no socket held data back: the path or a host caused the delay"
        }
    }
}

fn pattern_finding(pattern: WritePattern, cells: &[StallMeasurement]) -> Option<Finding> {
    let of = |option| {
        let is_one =
            move |cell: &&StallMeasurement| cell.pattern == pattern && cell.option == option;
        cells.iter().filter(is_one)
    };
    let stalled_without_option =
        || of(StallSocketOption::None).filter(|cell| has_stalled(cell) == Some(true));
    let worst = stalled_without_option()
        .max_by_key(|cell| cell.exchange_ns.as_ref().map(|times| times.p50))?;
    let mechanism = worst.mechanism?;
    let stalled: u64 = stalled_without_option().map(|cell| cell.stalled).sum();
    let exchanges: u64 = stalled_without_option().map(|cell| cell.exchanges).sum();
    let median = worst.exchange_ns.as_ref().map_or(0, |times| times.p50);
    let message = format!(
        "{} stalled in {stalled} of {exchanges} exchanges (median up to {}): {}.",
        pattern_description(pattern),
        format_time(median),
        mechanism_description(mechanism)
    );
    let remedies = [
        (StallSocketOption::NoDelay, "TCP_NODELAY at the writing end"),
        (
            StallSocketOption::QuickAckEach,
            "TCP_QUICKACK at the reading end, set again before every receive",
        ),
        (
            StallSocketOption::Cork,
            "TCP_CORK around writes that belong together (nginx: tcp_nopush on)",
        ),
    ];
    let is_tried = |option| of(option).any(|cell| has_stalled(cell).is_some());
    let were_tried = remedies.iter().any(|(option, _)| is_tried(*option));
    let works =
        |option| is_tried(option) && of(option).all(|cell| has_stalled(cell) == Some(false));
    let cures: Vec<_> =
        remedies.into_iter().filter(|(option, _)| works(*option)).map(|(_, text)| text).collect();
    let is_delayed_ack =
        matches!(mechanism, StallMechanism::NagleDelayedAck | StallMechanism::WindowDelayedAck);
    let advice = match cures.is_empty() {
        _ if !is_delayed_ack => "No socket option helps here.".to_owned(),
        true if !were_tried => {
            "The run ended before any option was tried; run again to find a remedy.".to_owned()
        }
        true => {
            "No option helped here; combine writes that belong together into one call.".to_owned()
        }
        false => format!(
            "Remedied here by {}. A single write for data that belongs together needs none of \
             them. Without program changes: 'ip route change ... quickack 1' at the reading end.",
            cures.join("; by ")
        ),
    };
    Some(finding(FindingCode::Stalled, Severity::Warning, message, &advice))
}

/// Returns a finding if batches stalled at the congestion window in spite of `TCP_NODELAY`.
fn window_finding(cells: &[StallMeasurement]) -> Option<Finding> {
    let stalled_batch = cells.iter().find(|cell| {
        cell.option == StallSocketOption::NoDelay
            && cell.mechanism == Some(StallMechanism::WindowDelayedAck)
            && has_stalled(cell) == Some(true)
    })?;
    let window = stalled_batch.far_tcp.map_or(0, |tcp| tcp.cwnd);
    let message = format!(
        "With TCP_NODELAY, {} small writes stalled in {} of {} exchanges: {} (its size at the far \
         end: {window} segments).",
        stalled_batch.writes,
        stalled_batch.stalled,
        stalled_batch.exchanges,
        mechanism_description(StallMechanism::WindowDelayedAck)
    );
    let advice = "Write the batch in one call; or raise initcwnd of the route at the writing end; \
                  or set TCP_QUICKACK before every receive at the other.";
    Some(finding(FindingCode::Stalled, Severity::Warning, message, advice))
}

/// Returns a finding if the worst of the watched connections stalled and its mechanism is known.
pub(super) fn watch_finding(watch: &WatchedTraffic) -> Option<Finding> {
    let worst = watch.connections.first()?;
    let stalls = worst.client_stalls.saturating_add(worst.server_stalls);
    let mechanism = worst.mechanism.filter(|_| stalls > 0)?;
    let at_client = worst.client_stalls >= worst.server_stalls;
    let (writer, reader) = if at_client { ("client", "server") } else { ("server", "client") };
    let connections =
        watch.connections.iter().filter(|one| one.client_stalls + one.server_stalls > 0).count();
    let message = format!(
        "This traffic stalls: {connections} of {} connections, the worst {stalls} times ({} to {}). \
         There {}.",
        watch.connections.len(),
        worst.client,
        worst.server,
        mechanism_description(mechanism)
    );
    let advice = format!(
        "Set TCP_NODELAY at the {writer}, or TCP_CORK around writes that belong together (nginx: \
         tcp_nopush on), or write with one call; or set TCP_QUICKACK before every receive at the \
         {reader}."
    );
    Some(finding(FindingCode::Stalled, Severity::Warning, message, &advice))
}

#[cfg(test)]
mod tests {
    use horolog_record::{HeldDataSampleCounts, WatchedConnection};

    use super::*;

    fn cell(
        option: StallSocketOption,
        stalled: u64,
        mechanism: StallMechanism,
    ) -> StallMeasurement {
        StallMeasurement {
            pattern: WritePattern::WriteWriteRead,
            writes: 2,
            write_bytes: 10,
            option,
            exchanges: 10,
            first_ns: None,
            exchange_ns: None,
            stalled,
            in_band: 0,
            stalled_read: None,
            mechanism: (stalled > 0).then_some(mechanism),
            held: HeldDataSampleCounts::default(),
            service_max_ns: None,
            near_tcp: None,
            far_tcp: None,
            acks: None,
        }
    }

    #[test]
    fn only_cures_that_worked_are_named() {
        let nagle = StallMechanism::NagleDelayedAck;
        let cells = [
            cell(StallSocketOption::None, 9, nagle),
            cell(StallSocketOption::NoDelay, 0, nagle),
            cell(StallSocketOption::QuickAckEach, 9, nagle),
        ];
        let findings = pattern_findings(&cells);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("9 of 10 exchanges"), "{findings:?}");
        assert!(findings[0].advice.contains("TCP_NODELAY at the writing end"));
        assert!(
            !findings[0].advice.contains("TCP_QUICKACK at") && !findings[0].advice.contains("CORK")
        );
        assert!(pattern_findings(&cells[1..2]).is_empty());
    }

    #[test]
    fn options_that_were_not_tried_are_not_recommended() {
        let nagle = StallMechanism::NagleDelayedAck;
        let mut cells = vec![cell(StallSocketOption::None, 9, nagle)];
        let advice = |cells: &[StallMeasurement]| pattern_findings(cells)[0].advice.clone();
        assert!(
            advice(&cells).starts_with("The run ended before any option"),
            "{}",
            advice(&cells)
        );
        cells.push(cell(StallSocketOption::NoDelay, 9, nagle));
        assert!(advice(&cells).starts_with("No option helped here"), "{}", advice(&cells));
    }

    #[test]
    fn a_late_answer_has_no_option() {
        let findings =
            pattern_findings(&[cell(StallSocketOption::None, 9, StallMechanism::LateAnswer)]);
        assert!(findings[0].advice.contains("No socket option"), "{findings:?}");
    }

    #[test]
    fn watched_traffic_names_the_end_that_writes() {
        let one = WatchedConnection {
            server: "s".to_owned(),
            client: "c".to_owned(),
            answers: None,
            client_stalls: 1,
            server_stalls: 5,
            stall_ns: None,
            in_band: 0,
            mechanism: Some(StallMechanism::NagleDelayedAck),
            acks: None,
        };
        let mut watch = WatchedTraffic {
            port: 80,
            duration_ns: 1,
            connections: vec![one],
            connections_untracked: 0,
            packets_dropped: 0,
        };
        assert!(watch_finding(&watch).unwrap().advice.contains("Set TCP_NODELAY at the server"));
        watch.connections[0].mechanism = None;
        assert!(watch_finding(&watch).is_none());
    }
}
