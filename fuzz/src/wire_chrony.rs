//! Arbitrary bytes as a reply of chronyd to either request. Parsing never panics, and a parsed
//! tracking reply is unchanged after it was written and parsed again.
#![no_main]

use horolog_wire::chrony::{ChronydTrackingReply, statistics};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(statistics::ChronydStatisticsReply { statistics: Ok(counted), .. }) =
        statistics::ChronydStatisticsReply::parse(bytes)
    {
        assert!(bytes.len() >= 48 || counted.ntp_authenticated == 0);
    }
    let Ok(reply) = ChronydTrackingReply::parse(bytes) else { return };
    let again = ChronydTrackingReply::parse(&reply.emit()).expect("a written reply is readable");
    assert_eq!(again.sequence, reply.sequence);
    assert_eq!(again.tracking.is_ok(), reply.tracking.is_ok());
    if let (Ok(one), Ok(other)) = (reply.tracking, again.tracking) {
        assert_eq!((one.leap, one.stratum), (other.leap, other.stratum));
        assert_eq!(one.reference_id, other.reference_id);
    }
});
