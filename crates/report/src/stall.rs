//! Stalls of TCP in words: patterns, options, mechanisms, the kernel's settings. The table and the
//! HTML report share these words.

use std::fmt::Write as _;

use horolog_record::{
    CONNECTIONS_MISSED_MAX, Mechanism, PathStallResult, SocketOption, StallCell, StallEvidence,
    StallKernel, StallPattern, StallWatch, WatchedConnection,
};

use crate::units::{ABSENT, full_count, human_ns, percent_of};

/// Explanation of the figures.
pub(crate) const DEFINITION: &str = "Stalled: exchanges longer by the threshold than one without \
                                     a wait. Band: those of 38 to 42 ms. Mechanism: cause for \
                                     which the sockets held back data (TCP_INFO of both ends).";

/// Columns of a table of cells.
pub(crate) const COLUMNS: [&str; 9] =
    ["first", "p50", "max", "exchanges", "stalled", "band", "read", "mechanism", "service"];

/// Returns a pattern with its numbers.
#[must_use]
pub fn pattern(cell: &StallCell) -> String {
    let bytes = cell.write_bytes;
    match cell.pattern {
        StallPattern::Single => format!("1 × {bytes} B, read"),
        StallPattern::WriteWriteRead => format!("2 × {bytes} B, read"),
        StallPattern::FullSegments => format!("2 × {bytes} B (whole segments), read"),
        StallPattern::LastWithEnd => format!("2 × {bytes} B, the last with FIN"),
        StallPattern::Batch => format!("{} × {bytes} B, as many reads", cell.writes),
        StallPattern::HeaderAndBody => format!("header, {bytes} B body by sendfile"),
        StallPattern::HeaderBodyClose => format!("header, {bytes} B body, close"),
        StallPattern::CorkForgotten => format!("header, {bytes} B body, cork left on"),
    }
}

/// Cell of a table and the number of cells that it represents, itself included.
pub(crate) struct GroupedCell<'a> {
    pub(crate) cell: &'a StallCell,
    pub(crate) of: usize,
}

impl GroupedCell<'_> {
    pub(crate) fn pattern(&self) -> String {
        match self.of {
            1 => pattern(self.cell),
            of => {
                let StallCell { writes, write_bytes, .. } = self.cell;
                format!("{writes} × {write_bytes} B, worst of {of} batches")
            }
        }
    }
}

/// Explanation of folded cells.
pub(crate) const FOLDED: &str = "Batches with the same option and mechanism are shown by the \
                                 worst one; --json and --html contain all.";

/// Returns all cells, except that of the batches with the same option and mechanism only the one
/// that stalled most often, or longest, remains, at the position of the first.
pub(crate) fn grouped(cells: &[StallCell]) -> Vec<GroupedCell<'_>> {
    let badness = |cell: &StallCell| {
        let share = cell.stalled as f64 / cell.exchanges.max(1) as f64;
        (share, cell.exchange_ns.as_ref().map_or(0, |times| times.p50))
    };
    let mut all: Vec<GroupedCell<'_>> = Vec::new();
    for cell in cells {
        let is_like = |other: &&mut GroupedCell<'_>| {
            let is_batch = |cell: &StallCell| cell.pattern == StallPattern::Batch;
            let other = other.cell;
            is_batch(cell)
                && is_batch(other)
                && (cell.option, cell.mechanism) == (other.option, other.mechanism)
        };
        match all.iter_mut().find(is_like) {
            Some(like) => {
                like.of += 1;
                if badness(cell) > badness(like.cell) {
                    like.cell = cell;
                }
            }
            None => all.push(GroupedCell { cell, of: 1 }),
        }
    }
    all
}

/// Returns the name of an option.
pub(crate) const fn option(option: SocketOption) -> &'static str {
    match option {
        SocketOption::None => "-",
        SocketOption::NoDelay => "TCP_NODELAY",
        SocketOption::QuickAckOnce => "TCP_QUICKACK once",
        SocketOption::QuickAckEach => "TCP_QUICKACK each",
        SocketOption::Cork => "TCP_CORK",
    }
}

/// Returns the name of a mechanism.
#[must_use]
pub const fn mechanism(mechanism: Option<Mechanism>) -> &'static str {
    match mechanism {
        None => ABSENT,
        Some(Mechanism::NagleDelayedAck) => "Nagle + delayed ACK",
        Some(Mechanism::WindowDelayedAck) => "cwnd + delayed ACK",
        Some(Mechanism::Cork) => "cork",
        Some(Mechanism::LateAnswer) => "late response",
        Some(Mechanism::Loss) => "loss",
        Some(Mechanism::Elsewhere) => "other",
    }
}

/// Returns the figures of a cell, in the order of [`COLUMNS`].
pub(crate) fn cell(cell: &StallCell) -> [String; 9] {
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    let times = cell.exchange_ns.as_ref();
    [
        time(cell.first_ns),
        time(times.map(|times| times.p50)),
        time(times.map(|times| times.max)),
        full_count(cell.exchanges),
        percent_of(cell.stalled, cell.exchanges),
        percent_of(cell.in_band, cell.exchanges),
        cell.stalled_read.map_or_else(|| ABSENT.to_owned(), |read| read.to_string()),
        mechanism(cell.mechanism).to_owned(),
        time(cell.service_max_ns),
    ]
}

/// Returns the settings of this kernel, in a line.
pub(crate) fn kernel(kernel: &StallKernel) -> String {
    let mut facts = Vec::new();
    if let (Some(hz), Some(min)) = (kernel.hz, kernel.delayed_ack_min_ns) {
        facts.push(format!("HZ {hz}, delayed ACK at least HZ/25 = {}", human_ns(min)));
    }
    facts.push(match kernel.tcp_delack_min {
        Some(value) => format!("tcp_delack_min {value}"),
        None => "no tcp_delack_min".to_owned(),
    });
    if let Some(ns) = kernel.delayed_ack_max_ns {
        facts.push(format!("at most {}", human_ns(ns)));
    }
    let switch = |on: bool| if on { "on" } else { "off" };
    if let Some(on) = kernel.slow_start_after_idle {
        facts.push(format!("tcp_slow_start_after_idle {}", switch(on)));
    }
    if let Some(thresh) = kernel.pingpong_thresh {
        facts.push(format!("tcp_pingpong_thresh {thresh}"));
    }
    if let Some(on) = kernel.autocorking {
        facts.push(format!("tcp_autocorking {}", switch(on)));
    }
    if let Some(ns) = kernel.route_rto_min_ns {
        facts.push(format!("route: rto_min {}", human_ns(ns)));
    }
    if let Some(on) = kernel.route_quick_ack {
        facts.push(format!("route: quickack {}", switch(on)));
    }
    if let Some(segments) = kernel.route_initial_cwnd {
        facts.push(format!("route: initcwnd {segments}"));
    }
    facts.join("; ")
}

/// Returns the evidence for mechanisms, in a line.
pub(crate) fn evidence(result: &PathStallResult) -> String {
    let by = match result.evidence {
        StallEvidence::TcpInfo => "TCP_INFO and timing",
        StallEvidence::Packets => "TCP_INFO, timing and packets",
    };
    format!("evidence: {by}; stall threshold {}", human_ns(result.stall_min_ns))
}

/// Returns the evidence from packets, in a line for each cell that has any.
pub(crate) fn packets(result: &PathStallResult) -> Vec<String> {
    let line = |one: &GroupedCell<'_>| {
        let acks = one.cell.acks.as_ref()?;
        let delay = acks.delay_ns?;
        Some(format!(
            "{} ({}): {} of {} pure ACKs delayed by {}, {} of them released held data",
            one.pattern(),
            option(one.cell.option),
            acks.delayed,
            acks.pure,
            spread(human_ns(delay.min), &human_ns(delay.p50), &human_ns(delay.max)),
            acks.released
        ))
    };
    grouped(&result.cells).iter().filter_map(line).collect()
}

/// Formats two extremes and the median, or one figure if they look alike.
fn spread(min: String, median: &str, max: &str) -> String {
    if min == max { min } else { format!("{min} to {max} (median {median})") }
}

/// Returns the growth of the congestion window, in a line.
pub(crate) fn window(result: &PathStallResult) -> Option<String> {
    let step = |step: &horolog_record::WindowStep| {
        let pause = if step.after_pause { " after a pause" } else { "" };
        format!("{}{pause} ({})", step.cwnd, human_ns(step.exchange_ns))
    };
    let steps: Vec<_> = result.window.iter().map(step).collect();
    (!steps.is_empty()).then(|| {
        format!("Congestion window before each burst, and its duration: {}.", steps.join(", "))
    })
}

/// Returns a claim's verdict in a word.
pub(crate) const fn held(held: Option<bool>) -> &'static str {
    match held {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "not tested",
    }
}

/// Returns the watched traffic, in a line.
pub(crate) fn watched(watch: &StallWatch) -> String {
    let sum = |of: fn(&WatchedConnection) -> u64| {
        watch.connections.iter().map(of).fold(0, u64::saturating_add)
    };
    let mut text = format!(
        "Port {} observed for {}: {}, {} stalls at clients, {} at servers",
        watch.port,
        human_ns(watch.duration_ns),
        connections(watch.connections.len() as u64, ""),
        sum(|one| one.client_stalls),
        sum(|one| one.server_stalls)
    );
    if watch.connections_untracked > 0 {
        let _ = write!(text, "; {}", not_followed(watch.connections_untracked));
    }
    if watch.packets_dropped > 0 {
        let _ =
            write!(text, "; {} packets dropped by the capture", full_count(watch.packets_dropped));
    }
    text
}

/// Returns the number of connections that there was no room for.
#[must_use]
pub fn not_followed(missed: u64) -> String {
    let least = if missed < CONNECTIONS_MISSED_MAX { "" } else { "at least " };
    format!("{least}{} not tracked", connections(missed, " more"))
}

fn connections(count: u64, more: &str) -> String {
    format!("{} connection{}{more}", full_count(count), if count == 1 { "" } else { "s" })
}

/// Columns of a table of watched connections.
pub(crate) const WATCHED_COLUMNS: [&str; 8] = [
    "client",
    "responses",
    "at client",
    "at server",
    "stall p50",
    "stall max",
    "band",
    "mechanism",
];

/// Returns the figures of a watched connection, in the order of [`WATCHED_COLUMNS`].
pub(crate) fn connection(one: &WatchedConnection) -> [String; 8] {
    let times = one.stall_ns.as_ref();
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), human_ns);
    let stalls = one.client_stalls.saturating_add(one.server_stalls);
    [
        one.client.clone(),
        one.answers.map_or_else(|| ABSENT.to_owned(), full_count),
        full_count(one.client_stalls),
        full_count(one.server_stalls),
        time(times.map(|times| times.p50)),
        time(times.map(|times| times.max)),
        percent_of(one.in_band, stalls),
        mechanism(one.mechanism).to_owned(),
    ]
}
