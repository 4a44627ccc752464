//! Messages by hand, and all that can be written is read again.

use super::*;
use crate::ptp::management::{ManagementAction, ManagementHeader};
use crate::ptp::{NO_INTERVAL, PtpFlags, TimeInterval};
use proptest::prelude::*;

/// A unicast `Delay_Resp` written out by hand from clauses 13.3 and 13.8.
const DELAY_RESP: [u8; DELAY_RESP_LEN] = [
    0x09, 0x12, 0x00, 0x36, // IEEE 1588, Delay_Resp; version 2.1; 54 bytes
    0x2a, 0x00, 0x04, 0x00, // domain 42; unicast
    0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x80, 0x00, // correction 2.5 ns
    0x00, 0x00, 0x00, 0x00, // messageTypeSpecific
    0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x01, 0x00, 0x03, // source, port 3
    0xab, 0xcd, 0x03, 0x7f, // number; Delay_Resp in version 1; no interval
    0x00, 0x01, 0x00, 0x00, 0x00, 0x02, // 2^32 + 2 s
    0x3b, 0x9a, 0xc9, 0xff, // 999,999,999 ns
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x00, 0x01, // requestingPortIdentity
];

#[test]
fn delay_resp_by_hand() {
    let (message, trailer) = Message::parse(&DELAY_RESP).unwrap();
    assert!(trailer.is_empty() && message.suffix.is_empty());
    let header = Header {
        sdo_id: 0,
        minor_version: 1,
        domain: 42,
        flags: PtpFlags::UNICAST,
        correction: TimeInterval(0x2_8000),
        source: PortIdentity { clock: 0x0200_5eff_fe10_0001, port: 3 },
        sequence_id: 0xabcd,
        log_interval: NO_INTERVAL,
    };
    let requesting = PortIdentity { clock: 0x0102_0304_0506_0708, port: 1 };
    let receive = PtpTimestamp::new((1 << 32) + 2, 999_999_999);
    assert!(receive.is_normalised());
    assert_eq!(message, Message::new(header, PtpMessageBody::DelayResp { receive, requesting }));
    let mut back = [0; DELAY_RESP_LEN];
    assert_eq!(message.emit(&mut back), DELAY_RESP_LEN);
    assert_eq!(back, DELAY_RESP);
}

/// Table 37 of IEEE 1588-2019: what stands in the two bytes of the flags.
#[test]
fn flags_by_hand() {
    for (flags, bytes) in [
        (PtpFlags::ALTERNATE_MASTER, [0x01, 0]),
        (PtpFlags::TWO_STEP, [0x02, 0]),
        (PtpFlags::UNICAST, [0x04, 0]),
        (PtpFlags::LEAP_61, [0, 0x01]),
        (PtpFlags::LEAP_59, [0, 0x02]),
        (PtpFlags::UTC_OFFSET_VALID, [0, 0x04]),
        (PtpFlags::PTP_TIMESCALE, [0, 0x08]),
        (PtpFlags::TIME_TRACEABLE, [0, 0x10]),
        (PtpFlags::FREQUENCY_TRACEABLE, [0, 0x20]),
    ] {
        let mut message = DELAY_RESP;
        message[6..8].copy_from_slice(&bytes);
        assert_eq!(Message::parse(&message).unwrap().0.header.flags, flags);
    }
}

#[test]
fn a_message_ends_at_its_stated_length() {
    let mut bytes = [0; DELAY_RESP_LEN + 2];
    bytes[..DELAY_RESP_LEN].copy_from_slice(&DELAY_RESP);
    let (_, trailer) = Message::parse(&bytes).unwrap();
    assert_eq!(trailer, [0, 0]);
    for (length, error) in [(33, ParseError::Length), (53, ParseError::Length)] {
        bytes[3] = length;
        assert_eq!(Message::parse(&bytes), Err(error));
    }
    bytes[3] = 57;
    assert_eq!(Message::parse(&bytes), Err(ParseError::Truncated));
    assert_eq!(Message::parse(&bytes[..33]), Err(ParseError::Truncated));
}

#[test]
fn version_1_is_another_protocol() {
    let mut bytes = DELAY_RESP;
    bytes[1] = 0x01;
    assert_eq!(Message::parse(&bytes), Err(ParseError::Version));
}

fn bodies() -> impl Strategy<Value = PtpMessageBody<'static>> {
    let stamp = || (0u64..1 << 48, any::<u32>()).prop_map(|(s, n)| PtpTimestamp::new(s, n));
    let port = || any::<(u64, u16)>().prop_map(|(clock, port)| PortIdentity { clock, port });
    let grandmaster = any::<(u8, u8, u8, u16, u8, u64)>().prop_map(|all| Grandmaster {
        priority1: all.0,
        clock_class: all.1,
        clock_accuracy: all.2,
        variance: all.3,
        priority2: all.4,
        identity: all.5,
    });
    let announce = (stamp(), any::<(i16, u16, u8)>(), grandmaster).prop_map(
        |(origin, (utc_offset, steps_removed, time_source), grandmaster)| {
            let of_clock = Announce { origin, utc_offset, grandmaster, steps_removed, time_source };
            PtpMessageBody::Announce(of_clock)
        },
    );
    prop_oneof![
        stamp().prop_map(PtpMessageBody::Sync),
        stamp().prop_map(PtpMessageBody::DelayReq),
        stamp().prop_map(PtpMessageBody::FollowUp),
        (stamp(), port())
            .prop_map(|(receive, requesting)| PtpMessageBody::DelayResp { receive, requesting }),
        stamp().prop_map(PtpMessageBody::PdelayReq),
        (stamp(), port())
            .prop_map(|(receive, requesting)| PtpMessageBody::PdelayResp { receive, requesting }),
        (stamp(), port()).prop_map(|(origin, requesting)| PtpMessageBody::PdelayRespFollowUp {
            origin,
            requesting
        }),
        (port(), any::<(u8, u8)>(), 0u8..16).prop_map(|(target, (starting_hops, hops), action)| {
            let action = ManagementAction::from_bits(action);
            PtpMessageBody::Management(ManagementHeader { target, starting_hops, hops, action })
        }),
        announce,
        port().prop_map(PtpMessageBody::Signaling),
        Just(PtpMessageBody::Other(0x4, b"of another length")),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        body in bodies(),
        numbers: (u8, u16, i64, u64, u16, u16, i8),
        sdo_id in 0u16..1 << 12,
        minor_version in 0u8..16,
        suffix in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let (domain, flags, correction, clock, port, sequence_id, log_interval) = numbers;
        let header = Header {
            sdo_id, minor_version, domain, sequence_id, log_interval,
            flags: PtpFlags(flags),
            correction: TimeInterval(correction),
            source: PortIdentity { clock, port },
        };
        let has_suffix = !matches!(body, PtpMessageBody::Other(..));
        let suffix: &[u8] = if has_suffix { &suffix } else { &[] };
        let message = Message { header, body, suffix };
        let mut bytes = [0xee; 128];
        let length = message.emit(&mut bytes);
        let (back, trailer) = Message::parse(&bytes).unwrap();
        prop_assert_eq!(back, message);
        prop_assert_eq!((length, trailer.len()), (message.len(), bytes.len() - message.len()));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok((message, _)) = Message::parse(&bytes) {
            let _ = message.tlvs().count();
        }
    }
}
