//! Common parts of the table and the HTML report of a run over a path: its columns and its
//! sentences.

use horolog_record::{
    Distribution, PathLosses, PathMode, PathProtocol, PathRow, PathUdpResult, SignedDistribution,
    TimestampSource,
};

use crate::units::{
    ABSENT, amount, full_count, human_ns, human_rate, percent, percent_of, signed_ns,
};

/// Explanation of the columns.
pub(crate) const NOTE: &str = "L: payload bytes. IP: IP packets per datagram. R: load datagrams \
                               per probe. M: lost. S: received in order. T: half the round trip.";

/// Column: its title, its width on a terminal, the rank by which it is omitted on a narrow one
/// (rank 0 never is), and its cell.
pub(crate) type PathRowColumn = (&'static str, usize, u8, fn(&PathRow) -> String);

/// Columns of the table.
pub(crate) const COLUMNS: [PathRowColumn; 15] = [
    ("L", 6, 0, |row| row.length.to_string()),
    ("IP", 3, 5, |row| row.fragments.to_string()),
    ("R", 6, 4, |row| ratio(row.load.ratio)),
    ("sent", 9, 6, |row| full_count(row.counts.sent)),
    ("rate/s", 7, 3, |row| human_rate(row.achieved_rate).trim_end_matches("/s").to_owned()),
    ("M", 7, 0, |row| percent_of(row.counts.lost, row.counts.sent)),
    ("S", 8, 1, |row| row.order_ratio().map_or_else(|| ABSENT.to_owned(), percent)),
    ("dup", 7, 7, |row| full_count(row.counts.duplicate)),
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

/// Returns the subject of the measurement, in a line.
pub(crate) fn title(result: &PathUdpResult) -> String {
    let target = &result.target;
    let mode = match result.mode {
        PathMode::PingPong => "ping-pong",
        PathMode::OpenLoop => "fixed rate",
    };
    let protocol = match result.protocol {
        PathProtocol::Horolog => "UDP",
        PathProtocol::Stamp => "STAMP",
    };
    let flows = match result.flows {
        1 => String::new(),
        flows => format!(", {flows} flows"),
    };
    let wait = if result.busy_polling { "busy polling" } else { "blocking" };
    format!("{protocol} to {} ({}), {mode}, {wait}{flows}", target.name, target.address)
}

/// Returns one-way times, the shares of host and wire, and classes of a row, each in a line.
pub(crate) fn details(result: &PathUdpResult, index: usize, row: &PathRow) -> Vec<String> {
    let name = format!("{} bytes", row.length);
    let name = if result.rows.len() > 1 { format!("{}. {name}", index + 1) } else { name };
    let mut lines = Vec::new();
    if let (Some(there), Some(back)) = (&row.forward_ns, &row.backward_ns) {
        let way = |way: &SignedDistribution| {
            format!("{} (p99 {})", signed_ns(way.p50), signed_ns(way.p99))
        };
        lines.push(format!("{name}: forward {}, backward {}", way(there), way(back)));
    }
    let half = |one: &Option<Distribution>| one.as_ref().map(|one| human_ns(one.p50));
    if let (Some(send), Some(receive), Some(wire)) =
        (half(&row.host_send_ns), half(&row.host_receive_ns), half(&row.wire_ns))
    {
        let far = half(&row.far_ns).unwrap_or_else(|| ABSENT.to_owned());
        lines.push(format!(
            "{name}: near end {send} send and {receive} receive, far end {far}, wire and other \
                {wire}"
        ));
    }
    if let Some(late) = &row.send_late_ns {
        lines.push(format!(
            "{name}: send lateness {} (p99 {}), included in T",
            human_ns(late.p50),
            human_ns(late.p99)
        ));
    }
    if let Some(there) = row.dscp_forward {
        let back = row.dscp_backward.map_or_else(|| ABSENT.to_owned(), |back| back.to_string());
        lines.push(format!(
            "{name}: DSCP {} received as {there} forward, {back} backward",
            result.dscp
        ));
    }
    if let Some(at) = row.losses().filter(|at| *at != PathLosses::default()) {
        lines.push(format!(
            "{name}: lost forward: {} by the far end's rate limit, up to {} at its socket, at \
             least {} on the path; backward: up to {} at the near end's socket, at least {} on \
             the path",
            full_count(at.far_limit),
            full_count(at.far_socket),
            full_count(at.path_forward),
            full_count(at.near_socket),
            full_count(at.path_backward)
        ));
    }
    if let Some(arrived) = row.load.arrived {
        lines.push(format!(
            "{name}: {} of {} load datagrams received, warm-up included",
            full_count(arrived),
            full_count(row.load.sent_in_all)
        ));
    }
    lines
}

/// Returns the cost of the measurement itself, and the clocks that it is by.
pub(crate) fn cost(result: &PathUdpResult) -> String {
    let ns = |ns: f64| amount(ns).map_or_else(|| ABSENT.to_owned(), |ns| format!("{ns:.0} ns"));
    let timestamp_note = match result.timestamps {
        TimestampSource::User => "",
        TimestampSource::Kernel | TimestampSource::Hardware => {
            " One-way delays use kernel timestamps."
        }
    };
    format!(
        "Overhead: {} per exchange besides its system calls, of which {} (clock reading) is in \
         the round trip.{timestamp_note}",
        ns(result.cost.bookkeeping_ns),
        ns(result.cost.clock_reading_ns)
    )
}
