//! Replies that do not belong to this trial's requests, or to another client.

use super::*;

#[test]
fn a_reply_to_an_earlier_trial_is_late_however_quick_the_next_trial_is() {
    fn slow(n: u64, reply: Header) -> Vec<(Span, Header)> {
        // The last requests of the first trial are answered in the second, within the timeout.
        let after = if (1990..2000).contains(&n) { Span::from_ms(150) } else { Span::ZERO };
        vec![(after, reply)]
    }
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), slow);
    scene.timeout = Span::from_ms(200);
    let first = scene.run_trial();
    assert_eq!((first.received, first.late), (1990, 0));
    let second = scene.run_trial();
    assert_eq!((second.sent, second.received, second.late), (2000, 2000, 10));
    assert_eq!(second.lost(), 0);
}

#[test]
fn foreign_replies_are_not_late() {
    fn foreign(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let noise = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        vec![(Span::ZERO, Header { origin: NtpTimestamp::from_bits(noise ^ noise >> 29), ..reply })]
    }
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), foreign);
    // Any bits are an instant of the last minute, in which so long a run has sent requests.
    scene.carried.registered = 1_000_000;
    scene.clock.advance(Span::from_ms(60_000));
    let counts = scene.run_trial();
    assert_eq!(counts.received, 0);
    let origin = counts.invalid[InvalidReplyReason::Origin as usize];
    // A million of 2^27 numbers were used.
    assert!(origin >= 1950 && counts.late < 50, "{origin} unknown, {} late", counts.late);
}

#[test]
fn kisses_of_death_are_counted_by_their_code() {
    fn kiss(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let kiss = Header { stratum: 0, reference_id: *b"RATE", ..reply };
        vec![(Span::ZERO, if n < 500 { reply } else { kiss })]
    }
    let counts = SimulatedLane::with_frames(FaultInjectionPlan::default(), kiss).run_trial();
    assert_eq!((counts.received, counts.lost()), (500, 1500));
    assert_eq!(counts.invalid[InvalidReplyReason::KissRate as usize], 1500);
}

#[test]
fn a_server_that_is_not_synchronised_answers_all_the_same() {
    fn unsynchronised(n: u64, reply: Header) -> Vec<(Span, Header)> {
        let unknown = NtpTimestamp::UNKNOWN;
        let (receive, transmit) =
            if n.is_multiple_of(2) { (reply.receive, reply.transmit) } else { (unknown, unknown) };
        vec![(Span::ZERO, Header { stratum: 0, receive, transmit, ..reply })]
    }
    let counts =
        SimulatedLane::with_frames(FaultInjectionPlan::default(), unsynchronised).run_trial();
    assert_eq!((counts.received, counts.unsynchronised(), counts.lost()), (2000, 2000, 0));
    assert_eq!((counts.rtt.count(), counts.response.count()), (2000, 1000));
    assert_eq!(counts.invalid.iter().sum::<u64>(), 0);
}

#[test]
fn replies_to_another_client_do_not_count() {
    let mut scene = SimulatedLane::with_frames(FaultInjectionPlan::default(), answer);
    scene.path().is_misdirected = true;
    let counts = scene.run_trial();
    // No other client can receive the first reply.
    assert_eq!((counts.received, counts.lost()), (1, 1999));
    assert_eq!(counts.invalid[InvalidReplyReason::Client as usize], 1999);
}
