//! Offsets against a server whose transmit timestamps are wrong by a known time.

use super::profiles::{phase, run};
use super::*;
use crate::load_profile::LoadPhase;
use crate::offset::ServerOffsetCounts;

/// Time between the timestamp and the departure of a reply.
const EARLY: Span = Span::from_ns(12_345);

/// Writes the departure time into the transmit timestamp of a basic reply, at the end of the
/// packet. For interleaved mode, stores it for the next reply to the client.
pub(super) fn set_transmit_timestamp(
    packet: &mut [u8],
    left: NtpTimestamp,
    departures: Option<&mut HashMap<u64, NtpTimestamp>>,
) {
    let (_, timestamps) = packet.split_last_chunk_mut::<16>().unwrap();
    let [receive, transmit] =
        [0, 8].map(|at| u64::from_be_bytes(timestamps[at..at + 8].try_into().unwrap()));
    if transmit >= receive {
        timestamps[8..].copy_from_slice(&left.to_bits().to_be_bytes());
    }
    if let Some(departures) = departures {
        departures.insert(receive, left);
    }
}

/// Delays each reply by 20 µs, so that no transmit timestamp precedes the receive timestamp.
fn delayed_reply(_: u64, reply: Header) -> Vec<(Span, Header)> {
    vec![(Span::from_ns(20_000), reply)]
}

fn options() -> ServerOffsetOptions {
    ServerOffsetOptions { correction: LINK_DELAY, ..ServerOffsetOptions::default() }
}

fn measure_offsets(
    options: ServerOffsetOptions,
    interleaved: bool,
) -> (TrialCounts, ServerOffsetCounts) {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), delayed_reply);
    scene.offset = Some(ServerOffsetParameters { options, phc_ahead: PHC_AHEAD.unwrap() });
    scene.interleaved = interleaved;
    scene.path().transmit_error = Some(EARLY);
    scene.path().departures = interleaved.then(HashMap::new);
    let mut counts = scene.run_trial();
    let offsets = counts.offsets.take().unwrap();
    (counts, offsets)
}

/// Checks that all offsets have this error, within a nanosecond or two.
fn assert_error(offsets: &ServerOffsetCounts, expected: i64) {
    let summary = offsets.offsets.summary().unwrap();
    assert_eq!((summary.count, offsets.timestamped), (2000, 2000));
    assert!(summary.min >= expected - 2 && summary.max <= expected + 2, "{summary:?}");
}

#[test]
fn the_error_of_the_server_is_found_by_kernel_and_hardware_timestamps() {
    for hardware in [false, true] {
        let (_, offsets) = measure_offsets(ServerOffsetOptions { hardware, ..options() }, false);
        assert_error(&offsets, EARLY.as_ns());
    }
}

/// Also those of the basic replies with which a client begins.
#[test]
fn it_is_found_in_interleaved_mode() {
    let (counts, offsets) = measure_offsets(options(), true);
    assert_eq!(counts.interleaved, 2000 - u64::from(CLIENTS));
    assert_error(&offsets, EARLY.as_ns());
}

#[test]
fn the_mean_of_the_server_s_timestamps_lies_before_the_transmit_timestamp() {
    let (counts, offsets) =
        measure_offsets(ServerOffsetOptions { mean_of_server: true, ..options() }, false);
    let response = counts.response.mean().unwrap();
    let found = offsets.offsets.summary().unwrap().mean;
    assert!((found - (EARLY.as_ns() as f64 + response / 2.0)).abs() < 2.0, "{found}, {response}");
}

#[test]
fn nothing_is_counted_unasked() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    assert!(scene.run_trial().offsets.is_none());
}

/// On a profile from one rate up to five times that and back: each interval has the offsets of its
/// own replies, all of them correct.
fn assert_on_profile(rate: f64, behaviour: ServerBehaviour, interleaved: bool) {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), behaviour);
    scene.offset =
        Some(ServerOffsetParameters { options: options(), phc_ahead: PHC_AHEAD.unwrap() });
    scene.interleaved = interleaved;
    scene.path().transmit_error = Some(EARLY);
    scene.path().departures = interleaved.then(HashMap::new);
    let rises = LoadPhase { to: 5.0 * rate, ..phase(rate, 100) };
    let intervals = run(&mut scene, vec![phase(rate, 100), rises, phase(rate, 100)]);
    assert_eq!(intervals.len(), 6);
    for interval in &intervals {
        assert!(
            interval.sent > 0 && interval.received == interval.sent,
            "{} of {}",
            interval.received,
            interval.sent
        );
        let offsets = interval.offsets.as_ref().unwrap();
        let summary = offsets.offsets.summary().unwrap();
        assert_eq!((offsets.timestamped, summary.count), (interval.received, interval.received));
        let expected = EARLY.as_ns();
        assert!(summary.min >= expected - 2 && summary.max <= expected + 2, "{summary:?}");
    }
    let counted: u64 = intervals.iter().map(|interval| interval.interleaved).sum();
    let sent: u64 = intervals.iter().map(|interval| interval.sent).sum();
    assert_eq!(counted, if interleaved { sent - u64::from(CLIENTS) } else { 0 });
}

/// Replies take half an interval, so half of them come in the next one.
#[test]
fn each_interval_of_a_profile_has_the_offsets_of_its_replies() {
    assert_on_profile(4_000.0, |_, reply| vec![(Span::from_ms(25), reply)], false);
}

/// Replies take less than the time until a client's next request, but not the same interval.
#[test]
fn each_interval_has_them_in_interleaved_mode_too() {
    assert_on_profile(200.0, |_, reply| vec![(Span::from_ms(3), reply)], true);
}
