//! Management by hand, and all that can be written is read again.

use super::data::{
    ClockDescription, CurrentDataSet, DefaultDataSet, FixedLengthData, ParentDataSet, PortDataSet,
    TimePropertiesDataSet, id,
};
use super::*;
use crate::ptp::message::Grandmaster;
use crate::ptp::{Header, Message, MessageType, PtpMessageBody, PtpTimestamp, TimeInterval};
use proptest::prelude::*;

/// A question for PRIORITY1 to all ports, written out by hand from clauses 13.3, 15.4 and 15.5.
const GET_PRIORITY1: [u8; 56] = [
    0x0d, 0x02, 0x00, 0x38, // Management; version 2; 56 bytes
    0x00, 0x00, 0x00, 0x00, // domain 0
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // no correction
    0x00, 0x00, 0x00, 0x00, // messageTypeSpecific
    0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x01, 0x00, 0x03, // source, port 3
    0x00, 0x07, 0x04, 0x7f, // number 7; Management in version 1; no interval
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // all ports
    0x01, 0x01, 0x00, 0x00, // one boundary clock; get
    0x00, 0x01, 0x00, 0x04, // a management TLV of 4 bytes
    0x20, 0x05, 0x00, 0x00, // PRIORITY1, which the question leaves open
];

#[test]
fn a_question_by_hand() {
    let (message, trailer) = Message::parse(&GET_PRIORITY1).unwrap();
    assert!(trailer.is_empty());
    assert_eq!(message.kind(), Some(MessageType::Management));
    let PtpMessageBody::Management(addressee) = message.body else { panic!("{message:?}") };
    let expected = ManagementHeader {
        target: PortIdentity::ALL,
        starting_hops: 1,
        hops: 1,
        action: ManagementAction::Get,
    };
    assert_eq!(addressee, expected);
    let tlv = message.tlvs().next().unwrap().unwrap();
    let managed = ManagementTlv::from_tlv(&tlv).unwrap().unwrap();
    assert_eq!(managed, ManagementTlv { id: id::PRIORITY1, data: &[0, 0] });
    let mut back = [0; 56];
    assert_eq!(message.emit(&mut back), 56);
    assert_eq!(back, GET_PRIORITY1);
}

#[test]
fn a_refusal_by_hand() {
    let refused = ManagementErrorTlv { code: ManagementErrorId::NotSetable, id: id::DOMAIN };
    let mut bytes = [0xee; MANAGEMENT_ERROR_TLV_LEN];
    assert_eq!(refused.emit(&mut bytes), 12);
    assert_eq!(bytes, [0, 2, 0, 8, 0, 5, 0x20, 7, 0, 0, 0, 0]);
    let (tlv, _) = Tlv::parse(&bytes).unwrap();
    assert_eq!(ManagementErrorTlv::from_tlv(&tlv), Some(Ok(refused)));
    assert_eq!(ManagementTlv::from_tlv(&tlv), None);
}

#[test]
fn data_sets_by_hand() {
    let clock = Grandmaster {
        priority1: 128,
        clock_class: 6,
        clock_accuracy: 0x21,
        variance: 0x4e5d,
        priority2: 127,
        identity: 0x0102_0304_0506_0708,
    };
    let set = DefaultDataSet { two_step: true, slave_only: false, ports: 2, clock, domain: 24 };
    let mut bytes = [0xee; 20];
    set.emit(&mut bytes);
    let expected = [1, 0, 0, 2, 128, 6, 0x21, 0x4e, 0x5d, 127, 1, 2, 3, 4, 5, 6, 7, 8, 24, 0];
    assert_eq!(bytes, expected);
    let properties = TimePropertiesDataSet { utc_offset: 37, flags: 0x3c, time_source: 0x20 };
    let mut bytes = [0xee; 4];
    properties.emit(&mut bytes);
    assert_eq!(bytes, [0, 37, 0x3c, 0x20]);
    let current =
        CurrentDataSet { steps_removed: 1, offset: TimeInterval(2), delay: TimeInterval(3) };
    let mut bytes = [0xee; 18];
    current.emit(&mut bytes);
    assert_eq!(bytes, [0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    let mut bytes = [0xee; 10];
    PtpTimestamp::new(0x0102_0304_0506, 7).emit(&mut bytes);
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 0, 0, 0, 7]);
}

/// Two bytes of kinds, a text, two addresses, a maker, three texts and a profile.
#[test]
fn a_description_by_hand() {
    let description = ClockDescription {
        kinds: ClockDescription::ORDINARY,
        physical_layer: "L",
        physical_address: &[1, 2],
        protocol: 1,
        protocol_address: &[192, 0, 2, 1],
        manufacturer: [7, 8, 9],
        product: ";;",
        revision: "",
        user: "é",
        profile: [0, 0x1b, 0x19, 0, 1, 0],
    };
    let expected = [
        &[0x80, 0, 1, b'L', 0, 2, 1, 2, 0, 1, 0, 4, 192, 0, 2, 1, 7, 8, 9, 0, 2, b';', b';'][..],
        &[0, 2, 0xc3, 0xa9, 0, 0x1b, 0x19, 0, 1, 0],
    ]
    .concat();
    let mut bytes = vec![0xee; description.len()];
    assert_eq!(description.emit(&mut bytes), expected.len());
    assert_eq!(bytes, expected);
    bytes.push(0);
    assert_eq!(ClockDescription::parse(&bytes), Ok(description));
    bytes.push(0);
    assert_eq!(ClockDescription::parse(&bytes), Err(ParseError::Length));
}

#[test]
fn a_text_that_is_too_long_ends_with_a_whole_character() {
    let text = "é".repeat(200);
    assert_eq!(data::text_len(&text), 255);
    let mut bytes = [0; 256];
    assert_eq!(data::emit_text(&text, &mut bytes), 255);
    assert_eq!((bytes[0], bytes[255]), (254, 0));
}

/// Whether data is the same after it was written and read.
fn round_trips<T: FixedLengthData + PartialEq + Copy>(value: T) -> bool {
    let mut bytes = vec![0; T::LEN];
    value.emit(&mut bytes) == T::LEN
        && T::parse(&bytes).is_ok_and(|back| back == value)
        && T::parse(&bytes[1..]).is_err()
}

proptest! {
    #[test]
    fn data_sets_round_trip(
        clock: (u8, u8, u8, u16, u8, u64),
        port: (u64, u16),
        bits: (bool, bool),
        numbers: (u16, i64, i64, u16, u32, u8),
        intervals: (i8, i8, i8, i8),
    ) {
        let clock = Grandmaster {
            priority1: clock.0,
            clock_class: clock.1,
            clock_accuracy: clock.2,
            variance: clock.3,
            priority2: clock.4,
            identity: clock.5,
        };
        let port = PortIdentity { clock: port.0, port: port.1 };
        let (offset, delay) = (TimeInterval(numbers.1), TimeInterval(numbers.2));
        let set = DefaultDataSet {
            two_step: bits.0, slave_only: bits.1, ports: numbers.0, clock, domain: numbers.5
        };
        prop_assert!(round_trips(set));
        let set = CurrentDataSet { steps_removed: numbers.0, offset, delay };
        prop_assert!(round_trips(set));
        let set = ParentDataSet {
            port, has_statistics: bits.0, variance: numbers.3, phase_change_rate: numbers.4,
            grandmaster: clock
        };
        prop_assert!(round_trips(set));
        let (utc_offset, [flags, time_source]) =
            (numbers.0.cast_signed(), numbers.3.to_be_bytes());
        let set = TimePropertiesDataSet { utc_offset, flags, time_source };
        prop_assert!(round_trips(set));
        let set = PortDataSet {
            port, state: flags, log_min_delay_req: intervals.0, peer_delay: offset,
            log_announce: intervals.1, announce_receipt_timeout: time_source,
            log_sync: intervals.2, delay_mechanism: clock.priority1,
            log_min_pdelay_req: intervals.3, version: flags & 0xf,
        };
        prop_assert!(round_trips(set));
    }

    #[test]
    fn what_is_written_is_read(number: u16, data in proptest::collection::vec(any::<u8>(), 0..40)) {
        let managed = ManagementTlv { id: number, data: &data };
        let mut bytes = vec![0xee; managed.tlv_len()];
        prop_assert_eq!(managed.emit(&mut bytes), bytes.len());
        let (tlv, rest) = Tlv::parse(&bytes).unwrap();
        prop_assert!(rest.is_empty());
        let back = ManagementTlv::from_tlv(&tlv).unwrap().unwrap();
        let (read, padding) = back.data.split_at(data.len());
        prop_assert_eq!((back.id, read), (number, &data[..]));
        prop_assert!(padding.len() == data.len() % 2 && padding.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = ClockDescription::parse(&bytes);
        for number in [MANAGEMENT_TLV_TYPE, MANAGEMENT_ERROR_TLV_TYPE] {
            let tlv = Tlv { type_number: number, value: &bytes };
            let _ = (ManagementTlv::from_tlv(&tlv), ManagementErrorTlv::from_tlv(&tlv));
        }
        let header = Header::default();
        let _ = Message::new(header, PtpMessageBody::Other(0xf, &bytes)).tlvs().count();
    }
}
