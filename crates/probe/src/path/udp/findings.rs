//! The doubts about a run over a path, from its record. Pure.

use horolog_record::{
    Code, Distribution, Finding, PathMode, PathProtocol, PathRow, PathUdpResult, RowEnd, Severity,
    StampKind,
};

use crate::path::time;

/// Share by which a rate or a load may miss what was planned.
const TOLERANCE: f64 = 0.01;
/// Replies below which the 99.9th percentile is a single one's.
const SAMPLES_MIN: u64 = 1_000;
/// From this median of T on it is asked whether datagrams wait in queues, in ns.
const QUEUE_NS: u64 = 1_000_000;

/// What is known of a run beside its record.
#[derive(Debug, Default)]
pub(super) struct Circumstances {
    /// It was ended before it was through.
    pub(super) interrupted: bool,
    /// Rows in which the system clock was set.
    pub(super) stepped: Vec<usize>,
}

/// All doubts, in no order.
pub(super) fn all(result: &PathUdpResult, circumstances: &Circumstances) -> Vec<Finding> {
    let rows = result.rows.iter().enumerate();
    let mut findings: Vec<_> = rows.flat_map(|(index, row)| of_row(result, row, index)).collect();
    findings.extend(circumstances.stepped.iter().map(|row| Finding {
        trial: Some(*row),
        ..whole(
            Code::ClockStepped,
            Severity::Warning,
            "The system clock was set meanwhile: one-way times and the kernel's are wrong.".into(),
            "See which program sets it, and measure again.",
        )
    }));
    findings.extend(of_run(result));
    if circumstances.interrupted {
        findings.push(whole(
            Code::Interrupted,
            Severity::Note,
            if result.rows.is_empty() {
                "The run was ended before anything was measured.".into()
            } else if result.rows.last().is_some_and(is_warming_up) {
                "The run was ended in the warm-up of a row, before a request that counts.".into()
            } else {
                "The run was ended before it was through.".into()
            },
            "",
        ));
    }
    findings
}

/// Whether a row was ended before the first request that counts.
fn is_warming_up(row: &PathRow) -> bool {
    row.ended == Some(RowEnd::Interrupted) && row.counts.sent == 0
}

fn whole(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

fn of_run(result: &PathUdpResult) -> Vec<Finding> {
    let mut findings = Vec::new();
    let target = &result.target;
    let answered = || result.rows.iter().filter(|row| row.counts.received > 0);
    if target.same_clock {
        findings.push(whole(
            Code::SharedMachine,
            Severity::Note,
            "Both ends run on one kernel and share its processors.".into(),
            "For a real path, run 'horolog path serve' on the other host.",
        ));
    }
    if answered().next().is_some() && answered().all(|row| row.forward_ns.is_none()) {
        let apart = match target.clock_error_ns {
            Some(ns) => format!("may be {} apart", time(ns)),
            None => "are not known to be right".to_owned(),
        };
        findings.push(whole(
            Code::OneWayUnknown,
            Severity::Note,
            format!("The ends' clocks {apart}: one way cannot be told from the other."),
            "Synchronise both, by PTP where the way is short; 'horolog query' tells how well.",
        ));
    }
    if result.timestamps == StampKind::Kernel && answered().any(|row| row.host_send_ns.is_none()) {
        findings.push(whole(
            Code::StampsMissing,
            Severity::Warning,
            "The kernel took no timestamps of requests that left: host and wire stay one.".into(),
            "'ethtool -T' shows what the interface can stamp.",
        ));
    }
    findings.extend(crowded(result));
    findings
}

fn of_row(result: &PathUdpResult, row: &PathRow, index: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |code, severity, message: String, advice: &str| {
        let finding = whole(code, severity, message, advice);
        findings.push(Finding { trial: Some(index), ..finding });
    };
    let counts = &row.counts;
    if let Some((message, advice)) = silence(row, result.protocol) {
        say(Code::FarEndVanished, Severity::Error, message, advice);
    } else if counts.lost > 0 {
        let (message, advice) = loss(row);
        say(Code::PathLoss, Severity::Warning, message, advice);
    }
    if counts.reordered > 0 {
        let message = format!(
            "{} of {} replies came behind a later one{}.",
            counts.reordered,
            counts.received,
            split(row, |way| way.reordered)
        );
        say(Code::PathReordered, Severity::Warning, message, "Look for links that share the load.");
    }
    if counts.duplicate > 0 {
        let message = format!(
            "{} replies came once more{}.",
            counts.duplicate,
            split(row, |way| way.duplicate)
        );
        say(Code::DuplicateReplies, Severity::Warning, message, "Look for loops and mirrors.");
    }
    if counts.invalid > 0 {
        let message = format!("{} datagrams were no replies.", counts.invalid);
        say(Code::InvalidReplies, Severity::Warning, message, "See who else sends to this host.");
    }
    if row.fragments > 1 {
        let message = format!(
            "{} bytes are more than the MTU of {} carries: each datagram goes in {} fragments, and \
             is lost with any of them.",
            row.length, result.target.mtu, row.fragments
        );
        say(Code::Fragmented, Severity::Note, message, "");
    }
    if let Some((there, back)) = dscp(result.dscp, row) {
        let message = format!(
            "Requests left with DSCP {}, came with {there}, and replies came back with {back}.",
            result.dscp
        );
        say(Code::DscpChanged, Severity::Warning, message, "Some router remarks what passes.");
    }
    let load = &row.load;
    // At either end of a row load may be ahead by what one request is owed.
    let tolerance = TOLERANCE + 2.0 / counts.sent.max(1) as f64;
    if row.ended.is_none()
        && (load.ratio - load.planned_ratio).abs() > load.planned_ratio * tolerance
    {
        let message = format!("The load was {:.2} instead of {}.", load.ratio, load.planned_ratio);
        say(Code::LoadMissed, Severity::Warning, message, "Take longer rows.");
    }
    pace(result, row, &mut say);
    if (1..SAMPLES_MIN).contains(&counts.received) {
        let message = format!("{} replies are too few for a 99.9th percentile.", counts.received);
        say(Code::FewSamples, Severity::Note, message, "Take longer rows: --time or --count.");
    }
    findings
}

/// Whether the rate was held, and what lateness is in the figures.
fn pace(result: &PathUdpResult, row: &PathRow, say: &mut impl FnMut(Code, Severity, String, &str)) {
    let sent = row.counts.sent + row.counts.refused;
    if let Some(planned) = row.planned_rate.filter(|_| sent > 100 && row.ended.is_none())
        && row.achieved_rate < planned * (1.0 - TOLERANCE)
    {
        let message = format!("{:.0}/s were sent instead of {planned:.0}/s.", row.achieved_rate);
        let is_crowded = result.host.cores > 0 && spinning(result) >= result.host.cores as u64;
        let advice = if is_crowded { "Ask for less." } else { "Ask for less, or in more flows." };
        say(Code::GeneratorBehind, Severity::Warning, message, advice);
    }
    let late = row.send_late_ns.as_ref().zip(row.delay_ns.as_ref());
    if let Some((late, delay)) = late.filter(|(late, delay)| late.p99 > delay.p99)
        && result.mode == PathMode::OpenLoop
    {
        let message = format!(
            "Every hundredth request was sent {} late or more, and T has a 99th percentile of {}: \
             the upper percentiles are this host's.",
            time(late.p99),
            time(delay.p99)
        );
        let advice = if result.busy_polling { "Ask for less." } else { "Try --busy-poll." };
        say(Code::RequestsLate, Severity::Warning, message, advice);
    }
    let delay = row.delay_ns.as_ref().filter(|_| result.mode == PathMode::OpenLoop);
    let is_queue = |delay: &&Distribution| delay.p50 > QUEUE_NS.max(delay.min.saturating_mul(10));
    if let Some(delay) = delay.filter(is_queue) {
        let message = format!(
            "T is {} in the middle and {} at least: datagrams wait in queues, of the path or of a \
             host that is too slow for this rate.",
            time(delay.p50),
            time(delay.min)
        );
        let advice = "Ask for less until T grows no more with the rate.";
        say(Code::RequestsLate, Severity::Warning, message, advice);
    }
}

/// Threads of this end that never sleep; where both ends share this machine, the far end has more.
fn spinning(result: &PathUdpResult) -> u64 {
    let threads = if result.mode == PathMode::OpenLoop { 2 } else { 1 };
    if result.busy_polling { result.flows.saturating_mul(threads) } else { 0 }
}

/// Doubts those that look for datagrams all the time where each of them has no processor.
fn crowded(result: &PathUdpResult) -> Option<Finding> {
    let (threads, cores) = (spinning(result), result.host.cores as u64);
    (cores > 0 && threads > cores).then(|| {
        let message = format!(
            "{threads} threads look for datagrams all the time on {cores} processors: they wait \
             for each other, and figures have that in them."
        );
        let advice = "Leave --busy-poll away, or give fewer --flows.";
        whole(Code::GeneratorLimit, Severity::Warning, message, advice)
    })
}

fn silence(row: &PathRow, protocol: PathProtocol) -> Option<(String, &'static str)> {
    let answered = row.counts.received;
    match row.ended {
        Some(RowEnd::Vanished) => Some((
            format!("The far end stopped answering after {answered} replies."),
            "See whether it still runs, and what changed on the path.",
        )),
        Some(RowEnd::Closed) => Some((
            format!("Nobody listens at the far end's port any more, after {answered} replies."),
            match protocol {
                PathProtocol::Horolog => "Start 'horolog path serve' there again.",
                PathProtocol::Stamp => "Start the session-reflector there again.",
            },
        )),
        Some(RowEnd::Failed) => Some((
            format!("This host's socket failed after {answered} replies."),
            "See whether the interface and the route are still there.",
        )),
        _ if answered == 0 && row.counts.sent > 0 => Some((
            format!("Not one of {} requests was answered in time.", row.counts.sent),
            "See whether datagrams of this length pass, and whether --timeout is long enough.",
        )),
        _ => None,
    }
}

/// What was lost where, and what helps most.
fn loss(row: &PathRow) -> (String, &'static str) {
    let (counts, share) = (&row.counts, row.loss_ratio() * 100.0);
    let (lost, sent) = (counts.lost, counts.sent);
    let longer = "Give a longer --timeout.";
    if counts.late >= lost {
        let message = format!("{lost} of {sent} requests were answered too late ({share:.3}%).");
        return (message, longer);
    }
    let late = match counts.late {
        0 => String::new(),
        late => format!("; the replies to {late} of them came too late"),
    };
    let ways = split(row, |way| way.lost);
    let message =
        format!("{lost} of {sent} requests were not answered in time ({share:.3}%){ways}{late}.");
    let Some(at) = row.losses().filter(|at| at.far_limit + at.far_socket + at.near_socket > 0)
    else {
        let is_late = counts.late > lost / 2;
        return (message, if is_late { longer } else { "Counters of both hosts tell where." });
    };
    let parts = [
        (at.path_there.saturating_add(at.path_back), "Counters of both hosts tell where."),
        (at.far_limit, "Start the far end with a higher --max-rate, or ask for less."),
        (
            at.far_socket,
            "The far end reads too slowly: ask for less, or raise net.core.rmem_max there.",
        ),
        (
            at.near_socket,
            "This host reads too slowly: ask for less, or raise net.core.rmem_max here.",
        ),
        (counts.late, longer),
    ];
    let advice = parts.into_iter().rev().max_by_key(|(lost, _)| *lost).map_or("", |(_, text)| text);
    let message = format!(
        "{message} The hosts lost {} of them: {} over the far end's limit, up to {} at its socket, \
         whose buffer was full, and up to {} at this end's.",
        at.far_limit + at.far_socket + at.near_socket,
        at.far_limit,
        at.far_socket,
        at.near_socket
    );
    (message, advice)
}

/// How many on the way there, and how many on the way back.
fn split(row: &PathRow, of: impl Fn(&horolog_record::PathDirection) -> u64) -> String {
    match (&row.forward, &row.backward) {
        (Some(there), Some(back)) => {
            format!(", {} on the way there and {} on the way back", of(there), of(back))
        }
        _ => String::new(),
    }
}

/// The DSCPs that datagrams came with, where one is not the one that they left with.
fn dscp(sent: u8, row: &PathRow) -> Option<(u8, u8)> {
    let there = row.dscp_there.unwrap_or(sent);
    let back = row.dscp_back.unwrap_or(sent);
    (there != sent || back != sent).then_some((there, back))
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
