//! Arbitrary bytes as a PTP message with its TLVs. Parsing never panics, and a parsed message, TLV
//! or data set is unchanged after it was written and parsed again.
#![no_main]

use horolog_wire::ptp::Message;
use horolog_wire::ptp::management::data::{
    ClockDescription, CurrentDataSet, DefaultDataSet, FixedLengthData, ParentDataSet, PortDataSet,
    TimePropertiesDataSet,
};
use horolog_wire::ptp::management::{MANAGEMENT_ERROR_TLV_LEN, ManagementErrorTlv, ManagementTlv};
use horolog_wire::ptp::monitor::NetSyncMonitorResponse;
use horolog_wire::ptp::tlv::{Tlv, UNICAST_LEN_MAX, UnicastNegotiationTlv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((message, trailer)) = Message::parse(bytes) else { return };
    assert_eq!(message.len() + trailer.len(), bytes.len());
    let mut buffer = vec![0; message.len()];
    assert_eq!(message.emit(&mut buffer), buffer.len());
    let (again, rest) = Message::parse(&buffer).expect("a written message is readable");
    assert_eq!((again, rest.len()), (message, 0));
    for tlv in message.tlvs().flatten() {
        if let Some(Ok(unicast)) = UnicastNegotiationTlv::from_tlv(&tlv) {
            let mut buffer = [0; UNICAST_LEN_MAX];
            let length = unicast.emit(&mut buffer);
            let (again, _) = Tlv::parse(&buffer[..length]).expect("a written TLV is readable");
            assert_eq!(UnicastNegotiationTlv::from_tlv(&again), Some(Ok(unicast)));
        }
        if let Some(Ok(response)) = NetSyncMonitorResponse::from_tlv(&tlv) {
            let mut buffer = vec![0; NetSyncMonitorResponse::tlv_len(response.address.len())];
            response.emit(&mut buffer);
            // A value has an even length, so its address cannot have an odd one, which would need
            // padding.
            let (again, _) = Tlv::parse(&buffer).expect("a written TLV is readable");
            assert_eq!(NetSyncMonitorResponse::from_tlv(&again), Some(Ok(response)));
        }
        if let Some(Ok(managed)) = ManagementTlv::from_tlv(&tlv) {
            let mut buffer = vec![0; managed.tlv_len()];
            managed.emit(&mut buffer);
            let (again, _) = Tlv::parse(&buffer).expect("a written TLV is readable");
            assert_eq!(ManagementTlv::from_tlv(&again), Some(Ok(managed)));
            round_trip_as_each_type(managed.data);
        }
        if let Some(Ok(error)) = ManagementErrorTlv::from_tlv(&tlv) {
            let mut buffer = [0; MANAGEMENT_ERROR_TLV_LEN];
            error.emit(&mut buffer);
            let (again, _) = Tlv::parse(&buffer).expect("a written TLV is readable");
            assert_eq!(ManagementErrorTlv::from_tlv(&again), Some(Ok(error)));
        }
    }
});

/// Parses `data` as each type of data set, and checks that a parsed one is unchanged after it was
/// written and parsed again.
fn round_trip_as_each_type(data: &[u8]) {
    round_trip::<DefaultDataSet>(data);
    round_trip::<CurrentDataSet>(data);
    round_trip::<ParentDataSet>(data);
    round_trip::<TimePropertiesDataSet>(data);
    round_trip::<PortDataSet>(data);
    if let Ok(description) = ClockDescription::parse(data) {
        let mut buffer = vec![0; description.len()];
        assert_eq!(description.emit(&mut buffer), buffer.len());
        assert_eq!(ClockDescription::parse(&buffer), Ok(description));
    }
}

fn round_trip<T: FixedLengthData + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(value) = T::parse(data) else { return };
    let mut buffer = vec![0; T::LEN];
    assert_eq!(value.emit(&mut buffer), data.len());
    assert_eq!(T::parse(&buffer), Ok(value));
}
