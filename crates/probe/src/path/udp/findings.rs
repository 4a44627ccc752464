//! The doubts about a run over a path, from its record. Pure.

use horolog_record::{
    Code, Finding, PathMode, PathRow, PathUdpResult, RowEnd, Severity, StampKind,
};

/// Share by which a rate or a load may miss what was planned.
const TOLERANCE: f64 = 0.01;
/// Replies below which the 99.9th percentile is a single one's.
const SAMPLES_MIN: u64 = 1_000;

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
            "The run was ended before it was through.".into(),
            "",
        ));
    }
    findings
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
            Some(ns) => format!("may be {} apart", us(ns)),
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
    findings
}

fn of_row(result: &PathUdpResult, row: &PathRow, index: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |code, severity, message: String, advice: &str| {
        let finding = whole(code, severity, message, advice);
        findings.push(Finding { trial: Some(index), ..finding });
    };
    let counts = &row.counts;
    if let Some((message, advice)) = silence(row) {
        say(Code::FarEndVanished, Severity::Error, message, advice);
    } else if counts.lost > 0 {
        say(Code::PathLoss, Severity::Warning, loss(row), "Counters of both hosts tell where.");
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
        say(Code::GeneratorBehind, Severity::Warning, message, "Ask for less, or in more flows.");
    }
    let late = row.send_late_ns.as_ref().zip(row.delay_ns.as_ref());
    if let Some((late, delay)) = late.filter(|(late, delay)| late.p99 > delay.p50)
        && result.mode == PathMode::OpenLoop
    {
        let message = format!(
            "Every hundredth request was sent {} late or more, T is {} in the middle: the upper \
             percentiles are this host's.",
            us(late.p99),
            us(delay.p50)
        );
        say(Code::RequestsLate, Severity::Warning, message, "Try --busy-poll.");
    }
}

fn us(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

fn silence(row: &PathRow) -> Option<(String, &'static str)> {
    let answered = row.counts.received;
    match row.ended {
        Some(RowEnd::Vanished) => Some((
            format!("The far end stopped answering after {answered} replies."),
            "See whether it still runs, and what changed on the path.",
        )),
        Some(RowEnd::Closed) => Some((
            format!("Nobody listens at the far end's port any more, after {answered} replies."),
            "Start 'horolog path serve' there again.",
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

fn loss(row: &PathRow) -> String {
    let late = match row.counts.late {
        0 => String::new(),
        late => format!("; {late} came late"),
    };
    format!(
        "{} of {} requests were not answered in time ({:.3}%){}{late}.",
        row.counts.lost,
        row.counts.sent,
        row.loss_ratio() * 100.0,
        split(row, |way| way.lost)
    )
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
