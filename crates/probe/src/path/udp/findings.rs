//! Findings of a UDP path run, from its record. Pure.

use horolog_record::{
    Distribution, Finding, FindingCode, PathProtocol, PathSendMode, PathUdpResult, PathUdpRow,
    Severity, TimestampSource, UdpRowEndReason,
};

use crate::path::format_time;

/// Tolerated relative deviation of achieved from intended rate or load.
const RATE_TOLERANCE: f64 = 0.01;
/// Number of replies below which the 99.9th percentile is that of a single reply.
const SAMPLES_MIN: u64 = 1_000;
/// Median of T (half the round trip) from which queueing of datagrams is suspected, in ns.
const QUEUEING_MEDIAN_NS: u64 = 1_000_000;

/// Context of a run, not part of its record.
#[derive(Debug, Default)]
pub(super) struct UdpRunContext {
    /// True if the run was interrupted.
    pub(super) interrupted: bool,
    /// Rows in which the system clock was stepped.
    pub(super) stepped: Vec<usize>,
}

/// Returns all findings, in no order.
pub(super) fn all_findings(result: &PathUdpResult, context: &UdpRunContext) -> Vec<Finding> {
    let rows = result.rows.iter().enumerate();
    let mut findings: Vec<_> =
        rows.flat_map(|(index, row)| row_findings(result, row, index)).collect();
    findings.extend(context.stepped.iter().map(|row| {
        Finding {
            trial: Some(*row),
            ..finding(
                FindingCode::ClockStepped,
                Severity::Warning,
                "The system clock was stepped during the run: one-way delays and kernel times are \
             wrong."
                    .into(),
                "Find the program that steps it, then measure again.",
            )
        }
    }));
    findings.extend(run_findings(result));
    if context.interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            if result.rows.is_empty() {
                "The run was interrupted before any measurement.".into()
            } else if result.rows.last().is_some_and(is_warming_up) {
                "The run was interrupted in the warm-up of a row, before its first counted \
                 request."
                    .into()
            } else {
                "The run was interrupted.".into()
            },
            "",
        ));
    }
    findings
}

/// Returns true if a row was interrupted before its first counted request.
fn is_warming_up(row: &PathUdpRow) -> bool {
    row.ended == Some(UdpRowEndReason::Interrupted) && row.counts.sent == 0
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn run_findings(result: &PathUdpResult) -> Vec<Finding> {
    let mut findings = Vec::new();
    let target = &result.target;
    let answered = || result.rows.iter().filter(|row| row.counts.received > 0);
    if target.same_clock {
        findings.push(finding(
            FindingCode::SharedMachine,
            Severity::Note,
            "Both ends run on one kernel and share its CPUs.".into(),
            "For a real path, run 'horolog path serve' on the other host.",
        ));
    }
    if answered().next().is_some() && answered().all(|row| row.forward_ns.is_none()) {
        let apart = match target.clock_error_ns {
            Some(ns) => format!("may be {} apart", format_time(ns)),
            None => "may not be synchronised".to_owned(),
        };
        findings.push(finding(
            FindingCode::OneWayUnavailable,
            Severity::Note,
            format!("The ends' clocks {apart}: one-way delays are unavailable."),
            "Synchronise both, by PTP on short paths; 'horolog query' measures how well.",
        ));
    }
    if result.timestamps == TimestampSource::Kernel
        && answered().any(|row| row.host_send_ns.is_none())
    {
        findings.push(finding(
            FindingCode::TimestampsMissing,
            Severity::Warning,
            "The kernel took no transmit timestamps: host and wire delays are not \
             separated."
                .into(),
            "'ethtool -T' shows the interface's timestamping capabilities.",
        ));
    }
    findings.extend(overload_finding(result));
    findings
}

fn row_findings(result: &PathUdpResult, row: &PathUdpRow, index: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add_finding = |code, severity, message: String, advice: &str| {
        let finding = finding(code, severity, message, advice);
        findings.push(Finding { trial: Some(index), ..finding });
    };
    let counts = &row.counts;
    if let Some((message, advice)) = outage_message(row, result.protocol) {
        add_finding(FindingCode::FarEndUnreachable, Severity::Error, message, advice);
    } else if counts.lost > 0 {
        let (message, advice) = loss_message(row);
        add_finding(FindingCode::PathLoss, Severity::Warning, message, advice);
    }
    if counts.reordered > 0 {
        let message = format!(
            "{} of {} replies were reordered{}.",
            counts.reordered,
            counts.received,
            per_direction_text(row, |way| way.reordered)
        );
        add_finding(
            FindingCode::PathReordered,
            Severity::Warning,
            message,
            "Look for parallel links that share the load.",
        );
    }
    if counts.duplicate > 0 {
        let message = format!(
            "{} duplicate replies were received{}.",
            counts.duplicate,
            per_direction_text(row, |way| way.duplicate)
        );
        add_finding(
            FindingCode::DuplicateReplies,
            Severity::Warning,
            message,
            "Look for loops and mirrors.",
        );
    }
    if counts.invalid > 0 {
        let message = format!("{} datagrams were not replies.", counts.invalid);
        add_finding(
            FindingCode::InvalidReplies,
            Severity::Warning,
            message,
            "Find the other senders to this host.",
        );
    }
    if row.fragments > 1 {
        let message = format!(
            "{} bytes exceed the MTU of {}: each datagram is sent in {} fragments, and lost with \
             any of them.",
            row.length, result.target.mtu, row.fragments
        );
        add_finding(FindingCode::Fragmented, Severity::Note, message, "");
    }
    if let Some((there, back)) = changed_dscp(result.dscp, row) {
        let message = format!(
            "Requests were sent with DSCP {}, arrived with {there}, and replies returned with \
             {back}.",
            result.dscp
        );
        add_finding(
            FindingCode::DscpChanged,
            Severity::Warning,
            message,
            "A router on the path changes the DSCP.",
        );
    }
    let load = &row.load;
    // At the start and the end of a row the load may be ahead by that of one request.
    let tolerance = RATE_TOLERANCE + 2.0 / counts.sent.max(1) as f64;
    if row.ended.is_none()
        && (load.ratio - load.planned_ratio).abs() > load.planned_ratio * tolerance
    {
        let message = format!(
            "The achieved load ratio was {:.2} instead of {}.",
            load.ratio, load.planned_ratio
        );
        add_finding(
            FindingCode::PathLoadNotReached,
            Severity::Warning,
            message,
            "Use longer rows.",
        );
    }
    rate_findings(result, row, &mut add_finding);
    if (1..SAMPLES_MIN).contains(&counts.received) {
        let message = format!("{} replies are too few for a 99.9th percentile.", counts.received);
        add_finding(
            FindingCode::FewSamples,
            Severity::Note,
            message,
            "Use longer rows: --time or --count.",
        );
    }
    findings
}

/// Adds findings on a missed rate, late sending, and queueing.
fn rate_findings(
    result: &PathUdpResult,
    row: &PathUdpRow,
    add_finding: &mut impl FnMut(FindingCode, Severity, String, &str),
) {
    let sent = row.counts.sent + row.counts.refused;
    if let Some(planned) = row.intended_rate.filter(|_| sent > 100 && row.ended.is_none())
        && row.achieved_rate < planned * (1.0 - RATE_TOLERANCE)
    {
        let message =
            format!("The achieved rate was {:.0}/s instead of {planned:.0}/s.", row.achieved_rate);
        let is_crowded = result.host.cores > 0 && busy_threads(result) >= result.host.cores as u64;
        let advice =
            if is_crowded { "Lower the rate." } else { "Lower the rate, or use more flows." };
        add_finding(FindingCode::GeneratorBehind, Severity::Warning, message, advice);
    }
    let late = row.send_late_ns.as_ref().zip(row.delay_ns.as_ref());
    if let Some((late, delay)) = late.filter(|(late, delay)| late.p99 > delay.p99)
        && result.mode == PathSendMode::OpenLoop
    {
        let message = format!(
            "Every hundredth request was sent at least {} late, and T has a 99th percentile of {}: \
             the upper percentiles are caused by this host.",
            format_time(late.p99),
            format_time(delay.p99)
        );
        let advice = if result.busy_polling { "Lower the rate." } else { "Try --busy-poll." };
        add_finding(FindingCode::RequestsLate, Severity::Warning, message, advice);
    }
    let delay = row.delay_ns.as_ref().filter(|_| result.mode == PathSendMode::OpenLoop);
    let is_queue =
        |delay: &&Distribution| delay.p50 > QUEUEING_MEDIAN_NS.max(delay.min.saturating_mul(10));
    if let Some(delay) = delay.filter(is_queue) {
        let message = format!(
            "T has a median of {} and a minimum of {}: datagrams queue on the path or on a host \
             that is too slow for this rate.",
            format_time(delay.p50),
            format_time(delay.min)
        );
        let advice = "Lower the rate until T no longer grows with it.";
        add_finding(FindingCode::RequestsLate, Severity::Warning, message, advice);
    }
}

/// Returns the number of busy-polling threads of this end; a far end on the same host has more.
fn busy_threads(result: &PathUdpResult) -> u64 {
    let threads = if result.mode == PathSendMode::OpenLoop { 2 } else { 1 };
    if result.busy_polling { result.flows.saturating_mul(threads) } else { 0 }
}

/// Returns a finding if there are more busy-polling threads than CPUs.
fn overload_finding(result: &PathUdpResult) -> Option<Finding> {
    let (threads, cores) = (busy_threads(result), result.host.cores as u64);
    (cores > 0 && threads > cores).then(|| {
        let message = format!(
            "{threads} threads busy-poll on {cores} CPUs: they wait for each other, which the \
             results include."
        );
        let advice = "Omit --busy-poll, or use fewer --flows.";
        finding(FindingCode::GeneratorLimit, Severity::Warning, message, advice)
    })
}

fn outage_message(row: &PathUdpRow, protocol: PathProtocol) -> Option<(String, &'static str)> {
    let answered = row.counts.received;
    match row.ended {
        Some(UdpRowEndReason::Vanished) => Some((
            format!("The far end stopped replying after {answered} replies."),
            "Check that it still runs, and what changed on the path.",
        )),
        Some(UdpRowEndReason::Closed) => Some((
            format!("The far end's port was closed after {answered} replies."),
            match protocol {
                PathProtocol::Horolog => "Start 'horolog path serve' there again.",
                PathProtocol::Stamp => "Start the session-reflector there again.",
            },
        )),
        Some(UdpRowEndReason::Failed) => Some((
            format!("This host's socket failed after {answered} replies."),
            "Check the interface and the route.",
        )),
        _ if answered == 0 && row.counts.sent > 0 => Some((
            format!("None of {} requests received a reply in time.", row.counts.sent),
            "Check that datagrams of this length pass, and that --timeout is long enough.",
        )),
        _ => None,
    }
}

/// Returns message and advice on losses, by their locations.
fn loss_message(row: &PathUdpRow) -> (String, &'static str) {
    let (counts, share) = (&row.counts, row.loss_ratio() * 100.0);
    let (lost, sent) = (counts.lost, counts.sent);
    let longer = "Use a longer --timeout.";
    if counts.late >= lost {
        let message = format!("{lost} of {sent} requests received late replies ({share:.3}%).");
        return (message, longer);
    }
    let late = match counts.late {
        0 => String::new(),
        late => format!("; replies to {late} of them were late"),
    };
    let ways = per_direction_text(row, |way| way.lost);
    let message =
        format!("{lost} of {sent} requests received no reply in time ({share:.3}%){ways}{late}.");
    let Some(at) =
        row.loss_locations().filter(|at| at.far_limit + at.far_socket + at.near_socket > 0)
    else {
        let is_late = counts.late > lost / 2;
        return (
            message,
            if is_late {
                longer
            } else {
                "Check the counters of both hosts for the loss location."
            },
        );
    };
    let parts = [
        (
            at.path_forward.saturating_add(at.path_backward),
            "Check the counters of both hosts for the loss location.",
        ),
        (at.far_limit, "Raise --max-rate of the far end, or lower the rate."),
        (
            at.far_socket,
            "The far end reads too slowly: lower the rate, or raise net.core.rmem_max there.",
        ),
        (
            at.near_socket,
            "This host reads too slowly: lower the rate, or raise net.core.rmem_max here.",
        ),
        (counts.late, longer),
    ];
    let advice = parts.into_iter().rev().max_by_key(|(lost, _)| *lost).map_or("", |(_, text)| text);
    let message = format!(
        "{message} The hosts lost {} of them: {} to the far end's rate limit, up to {} to its full \
         socket buffer, and up to {} to this end's.",
        at.far_limit + at.far_socket + at.near_socket,
        at.far_limit,
        at.far_socket,
        at.near_socket
    );
    (message, advice)
}

/// Formats a count by direction, for the middle of a message; empty if unknown.
fn per_direction_text(
    row: &PathUdpRow,
    of: impl Fn(&horolog_record::PathDirectionCounts) -> u64,
) -> String {
    match (&row.forward, &row.backward) {
        (Some(there), Some(back)) => {
            format!(", {} forward and {} backward", of(there), of(back))
        }
        _ => String::new(),
    }
}

/// Returns the DSCPs with which requests and replies arrived, if one differs from `sent`.
fn changed_dscp(sent: u8, row: &PathUdpRow) -> Option<(u8, u8)> {
    let there = row.dscp_forward.unwrap_or(sent);
    let back = row.dscp_backward.unwrap_or(sent);
    (there != sent || back != sent).then_some((there, back))
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
