//! The packets of STAMP compared with the figures of RFC 8762, and any bytes.

use super::*;
use proptest::prelude::*;

/// Figure 3 of RFC 8762, field by field.
#[test]
fn a_senders_packet_is_laid_out_as_in_the_standard() {
    let packet = SenderPacket {
        sequence: 0x0102_0304,
        timestamp: RawTimestamp(0x1112_1314_1516_1718),
        error_estimate: ErrorEstimate(0x8102),
        session: 0x2122,
    };
    let mut bytes = [0xff; PACKET_LEN + 1];
    assert_eq!(packet.emit(&mut bytes), 44);
    assert_eq!(bytes[..4], [1, 2, 3, 4]);
    assert_eq!(bytes[4..12], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(bytes[12..16], [0x81, 0x02, 0x21, 0x22]);
    assert_eq!((&bytes[16..44], bytes[44]), (&[0; 28][..], 0xff));
    assert_eq!(SenderPacket::parse(&bytes), Ok((packet, &[0xff][..])));
}

/// Figure 5 of RFC 8762, field by field.
#[test]
fn a_reflectors_packet_is_laid_out_as_in_the_standard() {
    let packet = ReflectorPacket {
        sequence: 1,
        timestamp: RawTimestamp(2),
        error_estimate: ErrorEstimate(3),
        session: 4,
        received: RawTimestamp(5),
        sender: SenderPacket {
            sequence: 6,
            timestamp: RawTimestamp(7),
            error_estimate: ErrorEstimate(8),
            session: 4,
        },
        sender_hop_limit: 255,
    };
    let mut bytes = [0xff; PACKET_LEN];
    assert_eq!(packet.emit(&mut bytes), 44);
    let at = [(3, 1), (11, 2), (13, 3), (15, 4), (23, 5), (27, 6), (35, 7), (37, 8), (40, 255)];
    for (offset, value) in at {
        assert_eq!(bytes[offset], value, "byte {offset}");
    }
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), at.len(), "the rest is zero");
    assert_eq!(ReflectorPacket::parse(&bytes), Ok((packet, &[][..])));
    for len in 0..PACKET_LEN {
        assert_eq!(ReflectorPacket::parse(&bytes[..len]), Err(ParseError::Truncated));
        assert_eq!(SenderPacket::parse(&bytes[..len]), Err(ParseError::Truncated));
    }
}

#[test]
fn estimates_are_rounded_up_and_never_nothing() {
    let one = ErrorEstimate::new(Span::ZERO, true);
    assert!(one.is_synchronised() && !one.is_ptp() && one.error().unwrap() >= Span::ZERO);
    assert_ne!(one.to_bits() & 0xff, 0);
    for ns in [1, 1_000, 1_000_000, 16_000_000_000, i64::MAX] {
        let estimate = ErrorEstimate::new(Span::from_ns(ns), false);
        let error = estimate.error().unwrap().as_ns();
        // A multiplier of 8 bits: at most one part in 128 too much, and a rounded unit.
        assert!(error >= ns - 1, "{ns}: {error}");
        assert!(error <= ns.saturating_add(ns / 100).saturating_add(2), "{ns}: {error}");
        assert!(!estimate.is_synchronised());
    }
    assert_eq!(ErrorEstimate::from_bits(0x8000).error(), None);
}

#[test]
fn both_formats_of_time_are_read() {
    let instant = Timestamp::<Utc>::from_timespec(1_700_000_000, 123_456_789);
    let ntp = ErrorEstimate::new(Span::ZERO, true);
    let near = Timestamp::from_timespec(1_600_000_000, 0);
    let read = RawTimestamp::from_utc(instant).to_utc(ntp, near).unwrap();
    assert!((read - instant).as_ns().abs() <= 1, "{read:?}");
    let ptp = ErrorEstimate::from_bits(ntp.to_bits() | 1 << 14);
    let truncated = RawTimestamp((1_700_000_000 << 32) + 123_456_789);
    assert_eq!(truncated.to_utc(ptp, near), Some(instant));
    assert_eq!(RawTimestamp(1_000_000_000).to_utc(ptp, near), None);
    // Seconds beyond 2106 wrap.
    let late = Timestamp::from_timespec((1 << 32) + 5, 0);
    assert_eq!(RawTimestamp(5 << 32).to_utc(ptp, late), Some(late));
}

proptest! {
    #[test]
    fn any_bytes_are_read_and_written_alike(bytes: [u8; PACKET_LEN]) {
        let (sender, _) = SenderPacket::parse(&bytes).unwrap();
        let (reflector, _) = ReflectorPacket::parse(&bytes).unwrap();
        let mut written = [0; PACKET_LEN];
        sender.emit(&mut written);
        prop_assert_eq!(&written[..16], &bytes[..16]);
        prop_assert_eq!(SenderPacket::parse(&written).unwrap().0, sender);
        reflector.emit(&mut written);
        prop_assert_eq!(&written[..38], &bytes[..38]);
        prop_assert_eq!(ReflectorPacket::parse(&written).unwrap().0, reflector);
    }

    #[test]
    fn no_timestamp_upsets_the_reader(bits: u64, estimate: u16, pivot: i64) {
        let estimate = ErrorEstimate::from_bits(estimate);
        let _ = (RawTimestamp(bits).to_utc(estimate, Timestamp::from_ns(pivot)), estimate.error());
    }
}
