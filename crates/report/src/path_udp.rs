//! What the table and the page of a run over a path have in common: its columns and its sentences.

use horolog_record::{
    Distribution, PathLosses, PathMode, PathProtocol, PathRow, PathUdpResult, SignedDistribution,
    StampKind,
};

use crate::units::{
    ABSENT, amount, full_count, human_ns, human_rate, percent, percent_of, signed_ns,
};

/// What the columns are.
pub(crate) const NOTE: &str = "L: bytes of payload. IP: packets that a datagram goes in. R: \
                               datagrams of load for each valid one. M: lost. S: came in order. T: \
                               half the round trip.";

/// A column: its title, its width on a terminal, the rank by which it goes where that is narrow
/// (none goes of rank 0), and its cell.
pub(crate) type Column = (&'static str, usize, u8, fn(&PathRow) -> String);

/// The columns.
pub(crate) const COLUMNS: [Column; 15] = [
    ("L", 6, 0, |row| row.length.to_string()),
    ("IP", 3, 5, |row| row.fragments.to_string()),
    ("R", 6, 4, |row| ratio(row.load.ratio)),
    ("sent", 9, 6, |row| full_count(row.counts.sent)),
    ("rate/s", 7, 3, |row| human_rate(row.achieved_rate).trim_end_matches("/s").to_owned()),
    ("M", 7, 0, |row| percent_of(row.counts.lost, row.counts.sent)),
    ("S", 8, 1, |row| row.order_ratio().map_or_else(|| ABSENT.to_owned(), percent)),
    ("again", 7, 7, |row| full_count(row.counts.duplicate)),
    ("T mean", 7, 2, |row| {
        let mean = row.delay_ns.as_ref().and_then(|delay| amount(delay.mean));
        mean.map_or_else(|| ABSENT.to_owned(), |mean| human_ns(mean.round() as u64))
    }),
    ("min", 7, 9, |row| time(row.delay_ns.as_ref(), |delay| delay.min)),
    ("p50", 7, 0, |row| time(row.delay_ns.as_ref(), |delay| delay.p50)),
    ("p90", 7, 10, |row| time(row.delay_ns.as_ref(), |delay| delay.p90)),
    ("p99", 7, 0, |row| time(row.delay_ns.as_ref(), |delay| delay.p99)),
    ("p99.9", 7, 8, |row| time(row.delay_ns.as_ref(), |delay| delay.p99_9)),
    ("max", 7, 9, |row| time(row.delay_ns.as_ref(), |delay| delay.max)),
];

fn time(distribution: Option<&Distribution>, figure: fn(&Distribution) -> u64) -> String {
    distribution.map_or_else(|| ABSENT.to_owned(), |one| human_ns(figure(one)))
}

fn ratio(ratio: f64) -> String {
    match amount(ratio) {
        Some(ratio) if ratio.fract() == 0.0 && ratio < 1e6 => format!("{ratio:.0}"),
        Some(ratio) if ratio < 1e6 => format!("{ratio:.2}"),
        _ => ABSENT.to_owned(),
    }
}

/// What was measured, in a line.
pub(crate) fn title(result: &PathUdpResult) -> String {
    let target = &result.target;
    let manner = match result.mode {
        PathMode::PingPong => "ping-pong",
        PathMode::OpenLoop => "at a fixed rate",
    };
    let protocol = match result.protocol {
        PathProtocol::Horolog => "UDP",
        PathProtocol::Stamp => "STAMP",
    };
    let flows = match result.flows {
        1 => String::new(),
        flows => format!(", {flows} flows"),
    };
    let wait = if result.busy_polling { "busy polling" } else { "asleep between" };
    format!("{protocol} to {} ({}), {manner}, {wait}{flows}", target.name, target.address)
}

/// One-way times, the shares of host and wire, and classes of a row, each in a line.
pub(crate) fn details(result: &PathUdpResult, index: usize, row: &PathRow) -> Vec<String> {
    let name = format!("{} bytes", row.length);
    let name = if result.rows.len() > 1 { format!("{}. {name}", index + 1) } else { name };
    let mut lines = Vec::new();
    if let (Some(there), Some(back)) = (&row.forward_ns, &row.backward_ns) {
        let way = |way: &SignedDistribution| {
            format!("{} (p99 {})", signed_ns(way.p50), signed_ns(way.p99))
        };
        lines.push(format!("{name}: there {}, back {}", way(there), way(back)));
    }
    let half = |one: &Option<Distribution>| one.as_ref().map(|one| human_ns(one.p50));
    if let (Some(send), Some(receive), Some(wire)) =
        (half(&row.host_send_ns), half(&row.host_receive_ns), half(&row.wire_ns))
    {
        let far = half(&row.far_ns).unwrap_or_else(|| ABSENT.to_owned());
        lines.push(format!(
            "{name}: this host {send} out and {receive} in, far end {far}, wire and the rest {wire}"
        ));
    }
    if let Some(late) = &row.send_late_ns {
        lines.push(format!(
            "{name}: requests were late by {} (p99 {}), which is in T",
            human_ns(late.p50),
            human_ns(late.p99)
        ));
    }
    if let Some(there) = row.dscp_there {
        let back = row.dscp_back.map_or_else(|| ABSENT.to_owned(), |back| back.to_string());
        lines.push(format!("{name}: DSCP {} came as {there}, back as {back}", result.dscp));
    }
    if let Some(at) = row.losses().filter(|at| *at != PathLosses::default()) {
        lines.push(format!(
            "{name}: lost there {} by the far end's limit, up to {} at its socket, at least {} on \
             the path; back up to {} at this host's socket, at least {} on the path",
            full_count(at.far_limit),
            full_count(at.far_socket),
            full_count(at.path_there),
            full_count(at.near_socket),
            full_count(at.path_back)
        ));
    }
    if let Some(arrived) = row.load.arrived {
        lines.push(format!(
            "{name}: {} of {} datagrams of load came, those of the warm-up among them",
            full_count(arrived),
            full_count(row.load.sent_in_all)
        ));
    }
    lines
}

/// What the measurement itself costs, and by whose clocks it is.
pub(crate) fn cost(result: &PathUdpResult) -> String {
    let ns = |ns: f64| amount(ns).map_or_else(|| ABSENT.to_owned(), |ns| format!("{ns:.0} ns"));
    let stamps = match result.timestamps {
        StampKind::User => "",
        StampKind::Kernel | StampKind::Hardware => " One way is by the kernels' timestamps.",
    };
    format!(
        "Own cost: {} for each exchange beside its system calls, of which {}, a reading of the \
         clock, stands in the round trip.{stamps}",
        ns(result.cost.bookkeeping_ns),
        ns(result.cost.clock_reading_ns)
    )
}
