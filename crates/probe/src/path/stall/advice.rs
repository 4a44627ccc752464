//! What to change where exchanges stalled: a finding for each pattern, with the cures that worked
//! in this very run. Pure.

use horolog_record::{
    Code, Finding, Mechanism, Severity, SocketOption, StallCell, StallPattern, StallWatch,
};

use super::claims::stalls;
use crate::path::tcp::finding;
use crate::path::time;

/// Findings about patterns that stalled without an option.
pub(super) fn of_cells(cells: &[StallCell]) -> Vec<Finding> {
    let mut patterns: Vec<StallPattern> = Vec::new();
    let plain = cells.iter().filter(|cell| cell.option == SocketOption::None);
    for cell in plain.filter(|cell| stalls(cell) == Some(true)) {
        if !patterns.contains(&cell.pattern) {
            patterns.push(cell.pattern);
        }
    }
    let mut findings: Vec<_> =
        patterns.into_iter().filter_map(|pattern| of_pattern(pattern, cells)).collect();
    findings.extend(of_window(cells));
    findings
}

const fn name(pattern: StallPattern) -> &'static str {
    match pattern {
        StallPattern::Single => "A single write there and back",
        StallPattern::WriteWriteRead => "Two small writes before a read",
        StallPattern::FullSegments => "Two writes of whole segments before a read",
        StallPattern::LastWithEnd => "Two small writes, the last of them with the end,",
        StallPattern::Batch => "Small writes in a row, each answered by its own,",
        StallPattern::HeaderAndBody => "A header and a body in two writes",
        StallPattern::HeaderBodyClose => "A header and a body, and a close",
        StallPattern::CorkForgotten => "A cork that is not removed",
    }
}

const fn holder(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::NagleDelayedAck => {
            "Nagle's algorithm kept data back until an acknowledgement came, which the other end \
             delayed"
        }
        Mechanism::WindowDelayedAck => {
            "the congestion window was full until an acknowledgement came, which the other end \
             delayed"
        }
        Mechanism::Cork => "a cork kept data back until the kernel's timer let it go",
        Mechanism::LateAnswer => "the far end had all of the request and answered late",
        Mechanism::Loss => "segments were lost and sent again",
        Mechanism::Elsewhere => "no socket held anything back: the path or a machine took its time",
    }
}

fn of_pattern(pattern: StallPattern, cells: &[StallCell]) -> Option<Finding> {
    let of = |option| {
        let is_one = move |cell: &&StallCell| cell.pattern == pattern && cell.option == option;
        cells.iter().filter(is_one)
    };
    let plain = || of(SocketOption::None).filter(|cell| stalls(cell) == Some(true));
    let worst = plain().max_by_key(|cell| cell.exchange_ns.as_ref().map(|times| times.p50))?;
    let mechanism = worst.mechanism?;
    let stalled: u64 = plain().map(|cell| cell.stalled).sum();
    let exchanges: u64 = plain().map(|cell| cell.exchanges).sum();
    let median = worst.exchange_ns.as_ref().map_or(0, |times| times.p50);
    let message = format!(
        "{} stalled in {stalled} of {exchanges} exchanges (median up to {}): {}.",
        name(pattern),
        time(median),
        holder(mechanism)
    );
    let cures = [
        (SocketOption::NoDelay, "TCP_NODELAY at the end that writes"),
        (
            SocketOption::QuickAckEach,
            "TCP_QUICKACK at the end that reads, set again before every receive",
        ),
        (
            SocketOption::Cork,
            "TCP_CORK around the writes that belong together (nginx: tcp_nopush on)",
        ),
    ];
    let is_tried = |option| of(option).any(|cell| stalls(cell).is_some());
    let were_tried = cures.iter().any(|(option, _)| is_tried(*option));
    let works = |option| is_tried(option) && of(option).all(|cell| stalls(cell) == Some(false));
    let cures: Vec<_> =
        cures.into_iter().filter(|(option, _)| works(*option)).map(|(_, text)| text).collect();
    let by_timer = matches!(mechanism, Mechanism::NagleDelayedAck | Mechanism::WindowDelayedAck);
    let advice = match cures.is_empty() {
        _ if !by_timer => "No option of a socket cures that.".to_owned(),
        true if !were_tried => {
            "No option was tried with it before the run ended; try again for what cures it."
                .to_owned()
        }
        true => "None of the options cured it here; write with one call what belongs together."
            .to_owned(),
        false => format!(
            "Cured here by {}. One write of what belongs together needs none of them. Without a \
             change of programs: 'ip route change ... quickack 1' at the end that reads.",
            cures.join("; by ")
        ),
    };
    Some(finding(Code::Stalled, Severity::Warning, message, &advice))
}

/// Batches that stalled at the congestion window even with `TCP_NODELAY`.
fn of_window(cells: &[StallCell]) -> Option<Finding> {
    let held = cells.iter().find(|cell| {
        cell.option == SocketOption::NoDelay
            && cell.mechanism == Some(Mechanism::WindowDelayedAck)
            && stalls(cell) == Some(true)
    })?;
    let window = held.far_tcp.map_or(0, |tcp| tcp.cwnd);
    let message = format!(
        "With TCP_NODELAY, {} small writes stalled in {} of {} exchanges: {} (its size at the far \
         end: {window} segments).",
        held.writes,
        held.stalled,
        held.exchanges,
        holder(Mechanism::WindowDelayedAck)
    );
    let advice = "Write the batch with one call; or raise initcwnd of the route at the end that \
                  writes; or set TCP_QUICKACK before every receive at the other.";
    Some(finding(Code::Stalled, Severity::Warning, message, advice))
}

/// What to do about traffic that was watched.
pub(super) fn of_watch(watch: &StallWatch) -> Option<Finding> {
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
        holder(mechanism)
    );
    let advice = format!(
        "Have the {writer} set TCP_NODELAY, or TCP_CORK around writes that belong together (nginx: \
         tcp_nopush on), or write with one call; or the {reader} set TCP_QUICKACK before every \
         receive."
    );
    Some(finding(Code::Stalled, Severity::Warning, message, &advice))
}

#[cfg(test)]
mod tests {
    use horolog_record::{HeldSamples, WatchedConnection};

    use super::*;

    fn cell(option: SocketOption, stalled: u64, mechanism: Mechanism) -> StallCell {
        StallCell {
            pattern: StallPattern::WriteWriteRead,
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
            held: HeldSamples::default(),
            service_max_ns: None,
            near_tcp: None,
            far_tcp: None,
            acks: None,
        }
    }

    #[test]
    fn only_cures_that_worked_are_named() {
        let nagle = Mechanism::NagleDelayedAck;
        let cells = [
            cell(SocketOption::None, 9, nagle),
            cell(SocketOption::NoDelay, 0, nagle),
            cell(SocketOption::QuickAckEach, 9, nagle),
        ];
        let findings = of_cells(&cells);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("9 of 10 exchanges"), "{findings:?}");
        assert!(findings[0].advice.contains("TCP_NODELAY at the end that writes"));
        assert!(
            !findings[0].advice.contains("TCP_QUICKACK at") && !findings[0].advice.contains("CORK")
        );
        assert!(of_cells(&cells[1..2]).is_empty());
    }

    #[test]
    fn nothing_is_said_of_options_that_were_not_tried() {
        let nagle = Mechanism::NagleDelayedAck;
        let mut cells = vec![cell(SocketOption::None, 9, nagle)];
        let advice = |cells: &[StallCell]| of_cells(cells)[0].advice.clone();
        assert!(advice(&cells).starts_with("No option was tried"), "{}", advice(&cells));
        cells.push(cell(SocketOption::NoDelay, 9, nagle));
        assert!(advice(&cells).starts_with("None of the options cured it"), "{}", advice(&cells));
    }

    #[test]
    fn a_late_answer_has_no_option() {
        let findings = of_cells(&[cell(SocketOption::None, 9, Mechanism::LateAnswer)]);
        assert!(findings[0].advice.contains("No option"), "{findings:?}");
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
            mechanism: Some(Mechanism::NagleDelayedAck),
            acks: None,
        };
        let mut watch = StallWatch {
            port: 80,
            duration_ns: 1,
            connections: vec![one],
            connections_missed: 0,
            packets_dropped: 0,
        };
        assert!(of_watch(&watch).unwrap().advice.contains("Have the server set TCP_NODELAY"));
        watch.connections[0].mechanism = None;
        assert!(of_watch(&watch).is_none());
    }
}
