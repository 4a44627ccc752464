//! Claims over cells that are made up.

use horolog_record::{Distribution, HeldDataSampleCounts, TcpInfoSummary};

use super::*;

const MS: u64 = 1_000_000;

fn cell(
    pattern: WritePattern,
    option: StallSocketOption,
    writes: u32,
    stalled: u64,
) -> StallMeasurement {
    let p50 = if stalled > 5 { 41 * MS } else { MS / 20 };
    let times = Distribution {
        count: 10,
        min: MS / 20,
        mean: p50 as f64,
        stddev: 0.0,
        p50,
        p90: p50,
        p99: p50,
        p99_9: p50,
        p99_99: p50,
        max: p50,
        histogram: String::new(),
    };
    StallMeasurement {
        pattern,
        writes,
        write_bytes: 132,
        option,
        exchanges: 10,
        first_ns: Some(MS / 10),
        exchange_ns: Some(times),
        stalled,
        in_band: stalled,
        stalled_read: (stalled > 0).then_some(3),
        mechanism: (stalled > 0).then_some(StallMechanism::NagleDelayedAck),
        held: HeldDataSampleCounts { nagle: stalled, ..HeldDataSampleCounts::default() },
        service_max_ns: Some(MS / 50),
        near_tcp: Some(TcpInfoSummary { cwnd: 10, ..TcpInfoSummary::default() }),
        far_tcp: Some(TcpInfoSummary { ato_ns: 40 * MS, ..TcpInfoSummary::default() }),
        acks: None,
    }
}

fn kernel() -> StallKernelSettings {
    StallKernelSettings {
        hz: Some(250),
        delayed_ack_min_ns: Some(40 * MS),
        slow_start_after_idle: Some(true),
        ..StallKernelSettings::default()
    }
}

fn held(cells: &[StallMeasurement], window: &[CongestionWindowSample], id: &str) -> Option<bool> {
    let kernel = kernel();
    let measured = StallClaimInput {
        cells,
        is_complete: true,
        window,
        kernel: &kernel,
        congestion_control: None,
        final_write: Some(FinTerminatedExchange { duration_ns: MS / 10, previous_stalled: true }),
        threshold_ns: 10 * MS,
    };
    all_claims(&measured).into_iter().find(|claim| claim.id == id).unwrap().holds
}

#[test]
fn what_is_not_run_is_neither_held_nor_not() {
    let kernel = kernel();
    let measured = StallClaimInput {
        cells: &[],
        is_complete: false,
        window: &[],
        kernel: &kernel,
        congestion_control: None,
        final_write: None,
        threshold_ns: 0,
    };
    let claims = all_claims(&measured);
    let decided: Vec<_> = claims.iter().filter(|claim| claim.holds.is_some()).collect();
    assert_eq!(decided.len(), 1, "tcp_delack_min alone: {decided:?}");
    let mut ids: Vec<_> = claims.iter().map(|claim| &claim.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), claims.len(), "each has a name of its own");
}

#[test]
fn batches_are_judged_by_where_they_begin_to_stall() {
    let batch =
        |writes, stalled| cell(WritePattern::Batch, StallSocketOption::None, writes, stalled);
    let as_claimed = [batch(1, 0), batch(2, 0), batch(3, 9), batch(4, 9)];
    assert_eq!(held(&as_claimed, &[], "batch-from-3"), Some(true));
    assert_eq!(held(&as_claimed, &[], "batch-second-round"), Some(true));
    assert_eq!(held(&as_claimed, &[], "batch-third-read"), Some(true));
    assert_eq!(held(&[batch(2, 9), batch(3, 9)], &[], "batch-from-3"), Some(false));
    assert_eq!(held(&[batch(2, 0), batch(3, 0)], &[], "batch-from-3"), Some(false));
    let mut fourth = batch(4, 9);
    fourth.stalled_read = Some(2);
    assert_eq!(held(&[batch(3, 9), fourth], &[], "batch-third-read"), Some(false));
}

#[test]
fn timers_and_cures_are_judged() {
    let small = |option, stalled| cell(WritePattern::WriteWriteRead, option, 2, stalled);
    let cells = [
        small(StallSocketOption::None, 9),
        small(StallSocketOption::NoDelay, 0),
        small(StallSocketOption::QuickAckOnce, 0),
    ];
    for (id, expected) in [
        ("write-write-read", Some(true)),
        ("no-delay", Some(true)),
        ("quick-ack-once", Some(false)),
        ("one-small-segment", Some(true)),
        ("hz-25", Some(true)),
        ("band", Some(true)),
        ("ato", Some(true)),
        ("tcp-delack-min", Some(false)),
        ("cork", None),
    ] {
        assert_eq!(held(&cells, &[], id), expected, "{id}");
    }
    let undecided = [small(StallSocketOption::None, 4)];
    assert_eq!(held(&undecided, &[], "write-write-read"), None);
}

#[test]
fn windows_are_judged() {
    let step = |cwnd, after_pause| CongestionWindowSample {
        sent_bytes: 0,
        after_pause,
        cwnd,
        exchange_ns: 1,
    };
    let window = [step(10, false), step(20, false), step(40, false), step(10, true)];
    let cells = [cell(WritePattern::Single, StallSocketOption::None, 1, 0)];
    for (id, expected) in [
        ("first-window", Some(false)),
        ("slow-start", Some(true)),
        ("window-not-grown", Some(true)),
        ("restart-after-idle", Some(true)),
        ("window-stalls", None),
    ] {
        assert_eq!(held(&cells, &window, id), expected, "{id}");
    }
    let retained = [step(10, false), step(11, false), step(11, true)];
    let flat = [step(10, false), step(10, false), step(10, true)];
    assert_eq!(held(&cells, &flat, "restart-after-idle"), None);
    assert_eq!(held(&cells, &retained, "restart-after-idle"), Some(false));
    assert_eq!(held(&cells, &retained, "slow-start"), Some(false));
}

#[test]
fn runs_of_numbers_are_ranges() {
    assert_eq!(format_ranges(&vec![1, 2, 3, 5, 7, 8]), "1–3, 5, 7–8");
    assert_eq!(format_ranges(&Vec::new()), "none");
}
