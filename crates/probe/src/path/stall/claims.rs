//! Published claims about stalls of TCP on Linux (in articles from 2011 on, and the manuals that
//! they quote), each compared with the measurement. Pure.

use horolog_record::{
    CongestionWindowStep, StallKernelSettings, StallMeasurement, StallMechanism, StallPattern,
    StallSocketOption, TestedStallClaim,
};

/// Median with a forgotten cork above which the kernel's timer released the data, in ns.
const FORGOTTEN_MIN_NS: u64 = 150_000_000;
/// Longest response time of a far end that is not to blame, in ns.
const FAST_NS: u64 = 2_000_000;

/// Input of the claims.
pub(super) struct StallClaimInput<'a> {
    /// Cells that were run to the end.
    pub(super) cells: &'a [StallMeasurement],
    /// True if these are all planned cells.
    pub(super) is_whole: bool,
    pub(super) window: &'a [CongestionWindowStep],
    pub(super) kernel: &'a StallKernelSettings,
    /// Congestion control algorithm, which sets the size of the window.
    pub(super) congestion_control: Option<&'a str>,
    /// Exchange with the end of the stream, and its stall threshold.
    pub(super) last_with_end: Option<LastWithEnd>,
    pub(super) threshold_ns: u64,
}

/// Exchange of two small writes, the last of which ends the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWithEnd {
    pub(super) took_ns: u64,
    /// True if the exchanges before it on its connection stalled, so that this one would have.
    pub(super) stalls_before: bool,
}

/// Returns true if most exchanges stalled, false if next to none did; `None` in between.
pub(super) fn stalls(cell: &StallMeasurement) -> Option<bool> {
    match cell.exchanges {
        0 => None,
        all if cell.stalled.saturating_mul(2) >= all => Some(true),
        all if cell.stalled.saturating_mul(4) <= all => Some(false),
        _ => None,
    }
}

fn share(cell: &StallMeasurement) -> String {
    let median = cell
        .exchange_ns
        .as_ref()
        .map_or_else(String::new, |times| format!(", median {}", ms(times.p50)));
    format!("{} of {} stalled{median}", cell.stalled, cell.exchanges)
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn claim(id: &str, statement: &str, (held, figure): (Option<bool>, String)) -> TestedStallClaim {
    TestedStallClaim {
        id: id.to_owned(),
        statement: statement.to_owned(),
        holds: held,
        evidence: figure,
    }
}

/// Returns all claims in fixed order.
pub(super) fn all(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let mut claims = batches(measured);
    claims.extend(nagle(measured));
    claims.extend(quick_ack(measured));
    claims.extend(windows(measured));
    claims.extend(timers(measured));
    claims.extend(corks(measured));
    claims
}

impl StallClaimInput<'_> {
    fn cell(&self, pattern: StallPattern, option: StallSocketOption) -> Option<&StallMeasurement> {
        self.cells.iter().find(|cell| (cell.pattern, cell.option) == (pattern, option))
    }

    fn batches(&self, option: StallSocketOption) -> impl Iterator<Item = &StallMeasurement> {
        let of = move |cell: &&StallMeasurement| {
            cell.pattern == StallPattern::Batch && cell.option == option
        };
        self.cells.iter().filter(of)
    }

    /// Checks that a pattern stalls as claimed.
    fn expect(
        &self,
        pattern: StallPattern,
        option: StallSocketOption,
        is_claimed_to_stall: bool,
    ) -> (Option<bool>, String) {
        match self.cell(pattern, option) {
            Some(cell) => (stalls(cell).map(|does| does == is_claimed_to_stall), share(cell)),
            None => (None, "not run".to_owned()),
        }
    }

    /// Checks all batches of at least three writes.
    fn expect_batches(
        &self,
        option: StallSocketOption,
        is_claimed_to_stall: bool,
    ) -> (Option<bool>, String) {
        let cells: Vec<_> = self.batches(option).filter(|cell| cell.writes >= 3).collect();
        let stalled: Vec<_> = cells
            .iter()
            .filter(|cell| stalls(cell) == Some(true))
            .map(|cell| cell.writes)
            .collect();
        let free = cells
            .iter()
            .filter(|cell| stalls(cell) == Some(false))
            .map(|cell| cell.writes)
            .collect();
        let held = if is_claimed_to_stall { &free } else { &stalled };
        if cells.is_empty() {
            return (None, "not run".to_owned());
        }
        (Some(held.is_empty()), format!("stalled: {}; not: {}", list(&stalled), list(&free)))
    }
}

/// Formats numbers with consecutive ones as ranges.
fn list(numbers: &Vec<u32>) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let texts: Vec<_> = parts
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}–{last}"),
        })
        .collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

fn batches(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let none = StallSocketOption::None;
    let few: Vec<_> = measured.batches(none).filter(|cell| cell.writes < 3).collect();
    let few_stall = few.iter().any(|cell| stalls(cell) == Some(true));
    let (many, figure) = measured.expect_batches(none, true);
    let from_three = many.map(|many| many && !few_stall);
    let first = measured.batches(none).find(|cell| cell.writes >= 3);
    let round = first.and_then(|cell| {
        let (first_ns, times) = (cell.first_ns?, cell.exchange_ns.as_ref()?);
        let held = first_ns < measured.threshold_ns && times.p50 >= measured.threshold_ns;
        Some((Some(held), format!("first {}, median {}", ms(first_ns), ms(times.p50))))
    });
    let stalled: Vec<_> =
        measured.batches(none).filter(|cell| cell.writes >= 3 && cell.stalled > 0).collect();
    let reads: Vec<_> = stalled.iter().filter_map(|cell| cell.stalled_read).collect();
    let service = measured.batches(none).filter_map(|cell| cell.service_max_ns).max();
    let missing = || (None, "not run".to_owned());
    vec![
        claim(
            "batch-from-3",
            "batches stall from three writes on, and not below",
            (from_three, figure),
        ),
        claim(
            "batch-second-round",
            "the first batch passes, the following ones stall",
            round.unwrap_or_else(missing),
        ),
        claim(
            "batch-third-read",
            "the third read waits",
            (
                (!reads.is_empty()).then(|| reads.iter().all(|read| *read == 3)),
                format!("reads that waited, batch by batch: {}", list(&reads)),
            ),
        ),
        claim(
            "server-fast",
            "the server is not the cause: it answers within 2 ms",
            service.map_or_else(missing, |ns| {
                (Some(ns < FAST_NS), format!("slowest answer {}", ms(ns)))
            }),
        ),
    ]
}

fn nagle(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use StallPattern::{FullSegments, Single, WriteWriteRead};
    let none = StallSocketOption::None;
    let small = measured.cell(WriteWriteRead, none).map(|cell| {
        let is_nagle = cell.mechanism == Some(StallMechanism::NagleDelayedAck);
        let figure = format!(
            "{} observations of waiting sockets: {} held by Nagle, {} by the window",
            cell.held.nagle + cell.held.window + cell.held.cork,
            cell.held.nagle,
            cell.held.window
        );
        ((cell.stalled > 0).then_some(is_nagle), figure)
    });
    let last = measured.last_with_end.map(|last| {
        let held = last.stalls_before.then_some(last.took_ns < measured.threshold_ns);
        let behind = if last.stalls_before { "that stalled" } else { "that did not stall either" };
        (held, format!("{} with FIN, after writes {behind}", ms(last.took_ns)))
    });
    let missing = || (None, "not run".to_owned());
    vec![
        claim(
            "single-write",
            "delayed acknowledgements alone cause no delay: one write in each direction",
            measured.expect(Single, none, false),
        ),
        claim(
            "write-write-read",
            "two small writes before a read stall",
            measured.expect(WriteWriteRead, none, true),
        ),
        claim(
            "one-small-segment",
            "without options only one small segment is in flight unacknowledged",
            small.unwrap_or_else(missing),
        ),
        claim(
            "full-segment",
            "a full segment is sent at once",
            measured.expect(FullSegments, none, false),
        ),
        claim("end-of-stream", "data sent with FIN is sent at once", last.unwrap_or_else(missing)),
        claim(
            "no-delay",
            "with TCP_NODELAY small segments are sent at once",
            measured.expect(WriteWriteRead, StallSocketOption::NoDelay, false),
        ),
    ]
}

fn quick_ack(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use StallPattern::WriteWriteRead;
    vec![
        claim(
            "quick-ack-each",
            "TCP_QUICKACK set again after each receive cures batches",
            measured.expect_batches(StallSocketOption::QuickAckEach, false),
        ),
        claim(
            "quick-ack-once",
            "TCP_QUICKACK is not permanent: set once, it has no effect",
            measured.expect(WriteWriteRead, StallSocketOption::QuickAckOnce, true),
        ),
    ]
}

fn windows(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let windows: Vec<_> = measured.window.iter().map(|step| step.cwnd.to_string()).collect();
    let by = measured.congestion_control.map_or_else(String::new, |name| format!("; by {name}"));
    let figure = format!("windows {}{by}", windows.join(", "));
    let at = |index: usize| measured.window.get(index).map(|step| step.cwnd);
    let held_by_window = measured.batches(StallSocketOption::NoDelay).filter(|cell| {
        cell.stalled > 0 && cell.mechanism == Some(StallMechanism::WindowDelayedAck)
    });
    let by_window: Vec<_> = held_by_window.map(|cell| cell.writes).collect();
    let has_batches = measured.batches(StallSocketOption::NoDelay).next().is_some();
    let first = at(0);
    let single = measured.cell(StallPattern::Single, StallSocketOption::None);
    let idle_cwnd = single.and_then(|cell| cell.near_tcp).map(|tcp| tcp.cwnd);
    let before = measured.window.iter().position(|step| step.after_pause);
    let paused = before.and_then(|index| Some((at(index.checked_sub(1)?)?, at(index)?)));
    let is_on = measured.kernel.slow_start_after_idle;
    let figure_of = |value: Option<u64>| {
        value.map_or_else(|| "not run".to_owned(), |value| format!("{value} segments"))
    };
    vec![
        claim(
            "window-stalls",
            "with TCP_NODELAY batches stall at the congestion window",
            (
                has_batches.then_some(!by_window.is_empty()),
                format!("stalled at it: {}; first window {}", list(&by_window), figure_of(first)),
            ),
        ),
        claim(
            "first-window",
            "a connection begins with a window of one or two segments",
            (first.map(|cwnd| cwnd <= 2), figure_of(first)),
        ),
        claim(
            "slow-start",
            "the window doubles with each round trip while data waits",
            (at(0).zip(at(1)).map(|(one, next)| next >= one.saturating_mul(2)), figure),
        ),
        claim(
            "window-not-grown",
            "the window does not grow while no data waits for it",
            (
                idle_cwnd.zip(first).map(|(after, first)| after <= first),
                format!("after single writes {}{by}", figure_of(idle_cwnd)),
            ),
        ),
        claim(
            "restart-after-idle",
            "with tcp_slow_start_after_idle the window restarts after a pause, without it not",
            (
                // A window that had not grown is no evidence.
                paused.zip(first).zip(is_on).and_then(|(((before, after), first), on)| {
                    (before > first).then_some((after <= first) == on)
                }),
                paused.map_or_else(
                    || "not run".to_owned(),
                    |(before, after)| format!("{before} before the pause, {after} after it{by}"),
                ),
            ),
        ),
    ]
}

fn timers(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let kernel = measured.kernel;
    let stalled = measured.cell(StallPattern::WriteWriteRead, StallSocketOption::None);
    let stalled = stalled.filter(|cell| stalls(cell) == Some(true));
    let median = stalled.and_then(|cell| cell.exchange_ns.as_ref()).map(|times| times.p50);
    let tick_ns = kernel.hz.map(|hz| 1_000_000_000 / hz.max(1));
    let fits = median.zip(kernel.delayed_ack_min_ns).zip(tick_ns).map(|((ns, min), tick)| {
        (min.saturating_sub(tick)..=min.saturating_add(3 * tick)).contains(&ns)
    });
    let figure = |ns: Option<u64>| ns.map_or_else(|| "no stall".to_owned(), ms);
    let nagles = measured
        .cells
        .iter()
        .filter(|cell| cell.mechanism == Some(StallMechanism::NagleDelayedAck));
    let (all, in_band) =
        nagles.fold((0, 0), |(all, band), cell| (all + cell.stalled, band + cell.in_band));
    let ato = stalled.and_then(|cell| cell.far_tcp).map(|tcp| tcp.ato_ns);
    vec![
        claim(
            "hz-25",
            "an acknowledgement is delayed for at least HZ/25, and a stall lasts about as long",
            (
                fits,
                format!(
                    "HZ {}, HZ/25 {}, median stall {}",
                    kernel.hz.map_or_else(|| "unknown".to_owned(), |hz| hz.to_string()),
                    kernel.delayed_ack_min_ns.map_or_else(|| "unknown".to_owned(), ms),
                    figure(median)
                ),
            ),
        ),
        claim(
            "band",
            "stalled exchanges take 38 to 42 ms",
            (
                (measured.is_whole && all > 0).then_some(in_band * 2 >= all),
                format!("{in_band} of {all} stalls by delayed acknowledgements"),
            ),
        ),
        claim(
            "tcp-delack-min",
            "the minimum delay can be set by net.ipv4.tcp_delack_min",
            (
                Some(kernel.tcp_delack_min.is_some()),
                kernel.tcp_delack_min.map_or_else(
                    || "this kernel has no such setting".to_owned(),
                    |value| format!("its value is {value}"),
                ),
            ),
        ),
        claim(
            "ato",
            "the acknowledgement timeout is the minimum, or grows from it",
            (
                ato.zip(kernel.delayed_ack_min_ns).map(|(ato, min)| ato >= min),
                format!("at the end that delayed {}", figure(ato)),
            ),
        ),
    ]
}

fn corks(measured: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use StallPattern::{CorkForgotten, HeaderAndBody, HeaderBodyClose};
    let (none, cork) = (StallSocketOption::None, StallSocketOption::Cork);
    let forgotten = measured.cell(CorkForgotten, cork).and_then(|cell| {
        let p50 = cell.exchange_ns.as_ref()?.p50;
        Some((Some(p50 >= FORGOTTEN_MIN_NS), format!("median {}", ms(p50))))
    });
    vec![
        claim(
            "header-and-body",
            "a header and a body in two writes stall",
            measured.expect(HeaderAndBody, none, true),
        ),
        claim(
            "cork",
            "TCP_CORK around both sends them together, at once when it is removed",
            measured.expect(HeaderAndBody, cork, false),
        ),
        claim(
            "cork-holds",
            "under TCP_CORK nothing is sent that does not fill a segment",
            forgotten.unwrap_or_else(|| (None, "not run".to_owned())),
        ),
        claim(
            "close-uncorks",
            "closing the connection removes the cork",
            measured.expect(HeaderBodyClose, cork, false),
        ),
        claim(
            "nginx",
            "nginx sets TCP_CORK with tcp_nopush, and clears it by closing",
            (None, "this measurement does not run nginx".to_owned()),
        ),
    ]
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
