//! Published claims about TCP stalls on Linux (articles since 2011, and the manual pages that they
//! quote), each tested against the measurements. Pure.

use horolog_record::{
    CongestionWindowSample, StallKernelSettings, StallMeasurement, StallMechanism,
    StallSocketOption, TestedStallClaim, WritePattern,
};

/// Median exchange time in ns from which a cork that was never removed was released by the kernel's
/// 200 ms timer.
const CORK_TIMEOUT_MIN_NS: u64 = 150_000_000;
/// Response time in ns below which the far end is not the cause of a stall.
const SERVICE_FAST_MAX_NS: u64 = 2_000_000;

/// Measurements by which the claims are tested.
pub(super) struct StallClaimInput<'a> {
    /// Completed measurements.
    pub(super) cells: &'a [StallMeasurement],
    /// True if all planned measurements were completed.
    pub(super) is_complete: bool,
    pub(super) window: &'a [CongestionWindowSample],
    pub(super) kernel: &'a StallKernelSettings,
    /// Congestion control algorithm, which sets the size of the window.
    pub(super) congestion_control: Option<&'a str>,
    /// Exchange whose last write carries FIN, if it was run.
    pub(super) final_write: Option<FinTerminatedExchange>,
    pub(super) threshold_ns: u64,
}

/// Exchange of two small writes, the second of which carries FIN.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinTerminatedExchange {
    pub(super) duration_ns: u64,
    /// True if earlier exchanges on the same connection stalled, so that this one would have
    /// without FIN.
    pub(super) previous_stalled: bool,
}

/// Returns true if at least half of the exchanges stalled, false if at most a quarter did; `None`
/// in between or without exchanges.
pub(super) fn has_stalled(cell: &StallMeasurement) -> Option<bool> {
    match cell.exchanges {
        0 => None,
        all if cell.stalled.saturating_mul(2) >= all => Some(true),
        all if cell.stalled.saturating_mul(4) <= all => Some(false),
        _ => None,
    }
}

fn stall_summary(cell: &StallMeasurement) -> String {
    let median = cell
        .exchange_ns
        .as_ref()
        .map_or_else(String::new, |times| format!(", median {}", format_ms(times.p50)));
    format!("{} of {} stalled{median}", cell.stalled, cell.exchanges)
}

fn format_ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn tested_claim(
    id: &str,
    statement: &str,
    (holds, figure): (Option<bool>, String),
) -> TestedStallClaim {
    TestedStallClaim { id: id.to_owned(), statement: statement.to_owned(), holds, evidence: figure }
}

/// Returns all tested claims, in display order.
pub(super) fn all_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let mut claims = batch_claims(input);
    claims.extend(nagle_claims(input));
    claims.extend(quick_ack_claims(input));
    claims.extend(window_claims(input));
    claims.extend(timer_claims(input));
    claims.extend(cork_claims(input));
    claims
}

impl StallClaimInput<'_> {
    fn measurement(
        &self,
        pattern: WritePattern,
        option: StallSocketOption,
    ) -> Option<&StallMeasurement> {
        self.cells.iter().find(|cell| (cell.pattern, cell.option) == (pattern, option))
    }

    fn batch_measurements(
        &self,
        option: StallSocketOption,
    ) -> impl Iterator<Item = &StallMeasurement> {
        let of = move |cell: &&StallMeasurement| {
            cell.pattern == WritePattern::Batch && cell.option == option
        };
        self.cells.iter().filter(of)
    }

    /// Tests whether a pattern stalls as claimed, and returns the evidence too; `None` if it was
    /// not run or neither clearly stalled nor passed.
    fn test_pattern(
        &self,
        pattern: WritePattern,
        option: StallSocketOption,
        is_claimed_to_stall: bool,
    ) -> (Option<bool>, String) {
        match self.measurement(pattern, option) {
            Some(cell) => {
                (has_stalled(cell).map(|does| does == is_claimed_to_stall), stall_summary(cell))
            }
            None => (None, "not run".to_owned()),
        }
    }

    /// Tests the claim on batches of at least three writes: true unless one of them clearly did the
    /// opposite, `None` if none was run. Returns the evidence too.
    fn test_batches(
        &self,
        option: StallSocketOption,
        is_claimed_to_stall: bool,
    ) -> (Option<bool>, String) {
        let cells: Vec<_> =
            self.batch_measurements(option).filter(|cell| cell.writes >= 3).collect();
        let stalled: Vec<_> = cells
            .iter()
            .filter(|cell| has_stalled(cell) == Some(true))
            .map(|cell| cell.writes)
            .collect();
        let free = cells
            .iter()
            .filter(|cell| has_stalled(cell) == Some(false))
            .map(|cell| cell.writes)
            .collect();
        let held = if is_claimed_to_stall { &free } else { &stalled };
        if cells.is_empty() {
            return (None, "not run".to_owned());
        }
        (
            Some(held.is_empty()),
            format!("stalled: {}; not: {}", format_ranges(&stalled), format_ranges(&free)),
        )
    }
}

/// Formats sorted numbers, consecutive ones as a range: `1, 3–5`.
fn format_ranges(numbers: &Vec<u32>) -> String {
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

fn batch_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let none = StallSocketOption::None;
    let few: Vec<_> = input.batch_measurements(none).filter(|cell| cell.writes < 3).collect();
    let do_few_stall = few.iter().any(|cell| has_stalled(cell) == Some(true));
    let (do_many_stall, figure) = input.test_batches(none, true);
    let from_three = do_many_stall.map(|many| many && !do_few_stall);
    let first = input.batch_measurements(none).find(|cell| cell.writes >= 3);
    let second_round_claim = first.and_then(|cell| {
        let (first_ns, times) = (cell.first_ns?, cell.exchange_ns.as_ref()?);
        let held = first_ns < input.threshold_ns && times.p50 >= input.threshold_ns;
        Some((
            Some(held),
            format!("first {}, median {}", format_ms(first_ns), format_ms(times.p50)),
        ))
    });
    let stalled: Vec<_> = input
        .batch_measurements(none)
        .filter(|cell| cell.writes >= 3 && cell.stalled > 0)
        .collect();
    let reads: Vec<_> = stalled.iter().filter_map(|cell| cell.stalled_read).collect();
    let service = input.batch_measurements(none).filter_map(|cell| cell.service_max_ns).max();
    let missing = || (None, "not run".to_owned());
    vec![
        tested_claim(
            "batch-from-3",
            "batches stall from three writes on, and not below",
            (from_three, figure),
        ),
        tested_claim(
            "batch-second-round",
            "the first batch passes, the following ones stall",
            second_round_claim.unwrap_or_else(missing),
        ),
        tested_claim(
            "batch-third-read",
            "the third read waits",
            (
                (!reads.is_empty()).then(|| reads.iter().all(|read| *read == 3)),
                format!("reads that waited, batch by batch: {}", format_ranges(&reads)),
            ),
        ),
        tested_claim(
            "server-fast",
            "the server is not the cause: it answers within 2 ms",
            service.map_or_else(missing, |ns| {
                (Some(ns < SERVICE_FAST_MAX_NS), format!("slowest answer {}", format_ms(ns)))
            }),
        ),
    ]
}

fn nagle_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use WritePattern::{FullSegments, Single, WriteWriteRead};
    let none = StallSocketOption::None;
    let small = input.measurement(WriteWriteRead, none).map(|cell| {
        let is_nagle = cell.mechanism == Some(StallMechanism::NagleDelayedAck);
        let figure = format!(
            "{} observations of waiting sockets: {} held by Nagle, {} by the window",
            cell.held.nagle + cell.held.window + cell.held.cork,
            cell.held.nagle,
            cell.held.window
        );
        ((cell.stalled > 0).then_some(is_nagle), figure)
    });
    let last = input.final_write.map(|last| {
        let held = last.previous_stalled.then_some(last.duration_ns < input.threshold_ns);
        let behind =
            if last.previous_stalled { "that stalled" } else { "that did not stall either" };
        (held, format!("{} with FIN, after writes {behind}", format_ms(last.duration_ns)))
    });
    let missing = || (None, "not run".to_owned());
    vec![
        tested_claim(
            "single-write",
            "delayed acknowledgements alone cause no delay: one write in each direction",
            input.test_pattern(Single, none, false),
        ),
        tested_claim(
            "write-write-read",
            "two small writes before a read stall",
            input.test_pattern(WriteWriteRead, none, true),
        ),
        tested_claim(
            "one-small-segment",
            "without options only one small segment is in flight unacknowledged",
            small.unwrap_or_else(missing),
        ),
        tested_claim(
            "full-segment",
            "a full segment is sent at once",
            input.test_pattern(FullSegments, none, false),
        ),
        tested_claim(
            "end-of-stream",
            "data sent with FIN is sent at once",
            last.unwrap_or_else(missing),
        ),
        tested_claim(
            "no-delay",
            "with TCP_NODELAY small segments are sent at once",
            input.test_pattern(WriteWriteRead, StallSocketOption::NoDelay, false),
        ),
    ]
}

fn quick_ack_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use WritePattern::WriteWriteRead;
    vec![
        tested_claim(
            "quick-ack-each",
            "TCP_QUICKACK set again after each receive cures batches",
            input.test_batches(StallSocketOption::QuickAckEach, false),
        ),
        tested_claim(
            "quick-ack-once",
            "TCP_QUICKACK is not permanent: set once, it has no effect",
            input.test_pattern(WriteWriteRead, StallSocketOption::QuickAckOnce, true),
        ),
    ]
}

fn window_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let windows: Vec<_> = input.window.iter().map(|step| step.cwnd.to_string()).collect();
    let by = input.congestion_control.map_or_else(String::new, |name| format!("; by {name}"));
    let figure = format!("windows {}{by}", windows.join(", "));
    let at = |index: usize| input.window.get(index).map(|step| step.cwnd);
    let held_by_window = input.batch_measurements(StallSocketOption::NoDelay).filter(|cell| {
        cell.stalled > 0 && cell.mechanism == Some(StallMechanism::WindowDelayedAck)
    });
    let by_window: Vec<_> = held_by_window.map(|cell| cell.writes).collect();
    let has_batches = input.batch_measurements(StallSocketOption::NoDelay).next().is_some();
    let first = at(0);
    let single = input.measurement(WritePattern::Single, StallSocketOption::None);
    let idle_cwnd = single.and_then(|cell| cell.near_tcp).map(|tcp| tcp.cwnd);
    let before = input.window.iter().position(|step| step.after_pause);
    let paused = before.and_then(|index| Some((at(index.checked_sub(1)?)?, at(index)?)));
    let is_on = input.kernel.slow_start_after_idle;
    let figure_of = |value: Option<u64>| {
        value.map_or_else(|| "not run".to_owned(), |value| format!("{value} segments"))
    };
    vec![
        tested_claim(
            "window-stalls",
            "with TCP_NODELAY batches stall at the congestion window",
            (
                has_batches.then_some(!by_window.is_empty()),
                format!(
                    "stalled at it: {}; first window {}",
                    format_ranges(&by_window),
                    figure_of(first)
                ),
            ),
        ),
        tested_claim(
            "first-window",
            "a connection begins with a window of one or two segments",
            (first.map(|cwnd| cwnd <= 2), figure_of(first)),
        ),
        tested_claim(
            "slow-start",
            "the window doubles with each round trip while data waits",
            (at(0).zip(at(1)).map(|(one, next)| next >= one.saturating_mul(2)), figure),
        ),
        tested_claim(
            "window-not-grown",
            "the window does not grow while no data waits for it",
            (
                idle_cwnd.zip(first).map(|(after, first)| after <= first),
                format!("after single writes {}{by}", figure_of(idle_cwnd)),
            ),
        ),
        tested_claim(
            "restart-after-idle",
            "with tcp_slow_start_after_idle the window restarts after a pause, without it not",
            (
                // A window that had not grown before the pause proves nothing.
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

fn timer_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    let kernel = input.kernel;
    let stalled = input.measurement(WritePattern::WriteWriteRead, StallSocketOption::None);
    let stalled = stalled.filter(|cell| has_stalled(cell) == Some(true));
    let median = stalled.and_then(|cell| cell.exchange_ns.as_ref()).map(|times| times.p50);
    let tick_ns = kernel.hz.map(|hz| 1_000_000_000 / hz.max(1));
    let fits = median.zip(kernel.delayed_ack_min_ns).zip(tick_ns).map(|((ns, min), tick)| {
        (min.saturating_sub(tick)..=min.saturating_add(3 * tick)).contains(&ns)
    });
    let figure = |ns: Option<u64>| ns.map_or_else(|| "no stall".to_owned(), format_ms);
    let nagles =
        input.cells.iter().filter(|cell| cell.mechanism == Some(StallMechanism::NagleDelayedAck));
    let (all, in_band) =
        nagles.fold((0, 0), |(all, band), cell| (all + cell.stalled, band + cell.in_band));
    let ato = stalled.and_then(|cell| cell.far_tcp).map(|tcp| tcp.ato_ns);
    vec![
        tested_claim(
            "hz-25",
            "an acknowledgement is delayed for at least HZ/25, and a stall lasts about as long",
            (
                fits,
                format!(
                    "HZ {}, HZ/25 {}, median stall {}",
                    kernel.hz.map_or_else(|| "unknown".to_owned(), |hz| hz.to_string()),
                    kernel.delayed_ack_min_ns.map_or_else(|| "unknown".to_owned(), format_ms),
                    figure(median)
                ),
            ),
        ),
        tested_claim(
            "band",
            "stalled exchanges take 38 to 42 ms",
            (
                (input.is_complete && all > 0).then_some(in_band * 2 >= all),
                format!("{in_band} of {all} stalls by delayed acknowledgements"),
            ),
        ),
        tested_claim(
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
        tested_claim(
            "ato",
            "the acknowledgement timeout is the minimum, or grows from it",
            (
                ato.zip(kernel.delayed_ack_min_ns).map(|(ato, min)| ato >= min),
                format!("at the end that delayed {}", figure(ato)),
            ),
        ),
    ]
}

fn cork_claims(input: &StallClaimInput<'_>) -> Vec<TestedStallClaim> {
    use WritePattern::{CorkForgotten, HeaderAndBody, HeaderBodyClose};
    let (none, cork) = (StallSocketOption::None, StallSocketOption::Cork);
    let forgotten = input.measurement(CorkForgotten, cork).and_then(|cell| {
        let p50 = cell.exchange_ns.as_ref()?.p50;
        Some((Some(p50 >= CORK_TIMEOUT_MIN_NS), format!("median {}", format_ms(p50))))
    });
    vec![
        tested_claim(
            "header-and-body",
            "a header and a body in two writes stall",
            input.test_pattern(HeaderAndBody, none, true),
        ),
        tested_claim(
            "cork",
            "TCP_CORK around both sends them together, at once when it is removed",
            input.test_pattern(HeaderAndBody, cork, false),
        ),
        tested_claim(
            "cork-holds",
            "under TCP_CORK nothing is sent that does not fill a segment",
            forgotten.unwrap_or_else(|| (None, "not run".to_owned())),
        ),
        tested_claim(
            "close-uncorks",
            "closing the connection removes the cork",
            input.test_pattern(HeaderBodyClose, cork, false),
        ),
        tested_claim(
            "nginx",
            "nginx sets TCP_CORK with tcp_nopush, and clears it by closing",
            (None, "this measurement does not run nginx".to_owned()),
        ),
    ]
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
