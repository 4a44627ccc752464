//! The books of a flow against a path that loses, copies, delays and swaps.

use super::*;

const WARM_UP: u32 = 2;

fn stats_and_window() -> (FlowStats, DuplicateWindow) {
    let window = DuplicateWindow::new(1_000).unwrap();
    (0..100).for_each(|sequence| window.open(sequence));
    let mut stats = FlowStats::new(WARM_UP, Span::from_ms(10));
    stats.counts.sent = 98;
    (stats, window)
}

fn reply(sequence: u32, arrivals: u32, behind: u32) -> ProbeReply {
    ProbeReply {
        sequence,
        is_warm_up: false,
        received_ns: 5_000,
        sent_ns: 6_000,
        counts: Some(SessionCounts { arrivals, out_of_order: behind, load: 0 }),
        arrivals: Some(arrivals),
        traffic_class: Some(0xb8),
        error: None,
    }
}

fn at(latency_ns: i64) -> NearEndExchangeTimes {
    NearEndExchangeTimes {
        latency: Span::from_ns(latency_ns),
        user_sent_ns: 1_000,
        user_received_ns: 9_500,
        kernel_sent_ns: Some(2_000),
        kernel_received_ns: Some(9_000),
    }
}

#[test]
fn each_reply_is_counted_as_what_it_is() {
    let (mut stats, window) = stats_and_window();
    assert_eq!(
        stats.record_reply(&reply(0, 0, 0), &at(1), &window),
        ReplyClass::Other,
        "of the warm-up"
    );
    assert_eq!(stats.record_reply(&reply(2, 1, 0), &at(8_500), &window), ReplyClass::FirstInTime);
    // 4 overtook 3 on the way there; 6's echo overtook 5's.
    for one in [reply(4, 2, 0), reply(3, 3, 1), reply(6, 5, 1), reply(5, 4, 1)] {
        assert_eq!(stats.record_reply(&one, &at(8_500), &window), ReplyClass::FirstInTime);
    }
    assert_eq!(
        stats.record_reply(&reply(7, 6, 1), &at(10_000_001), &window),
        ReplyClass::Other,
        "late"
    );
    // One copy made on the way there, one on the way back.
    stats.record_reply(&reply(8, 7, 1), &at(8_500), &window);
    stats.record_reply(&reply(8, 8, 2), &at(8_500), &window);
    stats.record_reply(&reply(6, 5, 1), &at(8_500), &window);
    stats.record_reply(&reply(1_000_000, 8, 2), &at(1), &window);
    let PathRequestCounts { received, late, duplicate, reordered, invalid, .. } = stats.counts;
    assert_eq!((received, late, duplicate, reordered, invalid), (6, 1, 2, 2, 1));
    let (forward, backward) = stats.direction_counts().unwrap();
    assert_eq!((forward.lost, forward.duplicate, forward.reordered), (91, 1, 1));
    assert_eq!((backward.lost, backward.duplicate, backward.reordered), (0, 1, 1));
}

#[test]
fn times_are_split_between_host_wire_and_far_end() {
    let (mut stats, window) = stats_and_window();
    stats.record_reply(&reply(2, 1, 0), &at(8_500), &window);
    assert_eq!(stats.forward.summary().unwrap().min, 3_000);
    assert_eq!(stats.backward.summary().unwrap().min, 3_000);
    let one = |histogram: &Histogram| histogram.min().unwrap();
    assert_eq!((one(&stats.rtt), one(&stats.far_residence)), (8_500, 1_000));
    assert_eq!((one(&stats.host_send), one(&stats.host_receive)), (1_000, 500));
    assert_eq!(one(&stats.wire), 6_000);
    let mut other = FlowStats::new(WARM_UP, Span::from_ms(10));
    other.merge(&stats);
    assert_eq!(
        (other.rtt.count(), other.counts.sent, other.request_traffic_class),
        (1, 98, Some(0xb8))
    );
}
