//! Preparation of a run: checks the options, identifies the far end, reads the state of this host's
//! clock.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_sys::adjtimex::kernel_clock;
use horolog_time::Span;
use horolog_wire::path_probe::HEADER_LEN;
use horolog_wire::stamp::{ErrorEstimate, SENDER_HOP_LIMIT};

use super::codec::ProbeCodec;
use super::error::UdpPathError;
use super::flow::open_connected_socket;
use super::hello::{check_reflector, random_number, request_session};
use super::options::{COUNT_MAX, FLOWS_MAX, LENGTH_MAX, PathUdpOptions};

/// Clock of the far end, relative to this host's, and MTU of the path to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarEndClockAndMtu {
    pub(super) same_clock: bool,
    pub(super) clock_error_ns: Option<u64>,
    pub(super) mtu: u32,
}

/// Returns a STAMP codec with a random session identifier, which is never 0.
pub(super) fn stamp_codec() -> ProbeCodec {
    let clock = kernel_clock().ok();
    let error = clock.map_or(Span::from_ms(16_000), |clock| clock.maximum_error);
    let synchronised = clock.is_some_and(|clock| clock.synchronised);
    let session = (random_number() as u16).max(1);
    ProbeCodec::Stamp { session, error_estimate: ErrorEstimate::new(error, synchronised) }
}

/// Returns the error bound of this host's clock, in ns; `None` if it is not synchronised.
pub(super) fn local_error_bound_ns() -> Option<u64> {
    let clock = kernel_clock().ok().filter(|clock| clock.synchronised)?;
    u64::try_from(clock.maximum_error.as_ns()).ok()
}

/// Checks that the far end answers and supports the lengths; returns its properties.
pub(super) fn identify_far_end(
    options: &PathUdpOptions,
    to: SocketAddr,
) -> Result<FarEndClockAndMtu, UdpPathError> {
    let failed = |source| UdpPathError::Socket { address: to, source };
    let socket = open_connected_socket(options, to).map_err(failed)?;
    let mtu = socket.path_mtu(to).map_err(failed)?;
    if options.is_stamp {
        socket.set_hop_limit(to, SENDER_HOP_LIMIT).map_err(failed)?;
        check_reflector(&socket, to, &stamp_codec())?;
        return Ok(FarEndClockAndMtu { same_clock: false, clock_error_ns: None, mtu });
    }
    let welcome = request_session(&socket, to, 0)?;
    let (shortest, min) = (options.rows.iter().map(|row| row.length).min(), welcome.length_min);
    if let Some(length) = shortest.filter(|length| *length < min) {
        return Err(UdpPathError::TooShort { address: to, length, min });
    }
    let clock_difference_ns =
        welcome.error_ns.zip(local_error_bound_ns()).map(|(far, own)| far.saturating_add(own));
    let clock_error_ns = if welcome.same_clock { Some(0) } else { clock_difference_ns };
    // No session needs to be ended: the far end stores one only after its first probe.
    Ok(FarEndClockAndMtu { same_clock: welcome.same_clock, clock_error_ns, mtu })
}

pub(super) fn check_options(options: &PathUdpOptions) -> Result<(), UdpPathError> {
    let min = options.length_min();
    let (rows, flows) = (&options.rows, options.flows);
    if !(1..=1_000).contains(&rows.len()) {
        return Err(UdpPathError::RowCount(rows.len()));
    }
    let lengths = rows.iter().map(|row| (row.length, min));
    // A load datagram must hold a whole header.
    let load = (options.load_length, min.max(HEADER_LEN as u64));
    let is_wrong = |(length, min): &(u64, u64)| !(*min..=LENGTH_MAX).contains(length);
    if let Some((length, min)) = lengths.chain([load]).find(is_wrong) {
        return Err(UdpPathError::Length { length, min });
    }
    if let Some(row) = rows.iter().find(|row| !(0.0..=10_000.0).contains(&row.load_ratio)) {
        return Err(UdpPathError::LoadRatio(row.load_ratio));
    }
    if options.is_stamp && rows.iter().any(|row| row.load_ratio > 0.0) {
        return Err(UdpPathError::StampLoad);
    }
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(UdpPathError::FlowCount(flows));
    }
    for count in options.count.into_iter().chain([options.warm_up.max(1)]) {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(UdpPathError::RequestCount(count));
        }
    }
    if let Some(rate) = options.rate.filter(|rate| !(1.0..=10e6).contains(rate)) {
        return Err(UdpPathError::Rate(rate));
    }
    if options.dscp > 63 {
        return Err(UdpPathError::Dscp(options.dscp));
    }
    if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&options.timeout) {
        return Err(UdpPathError::Timeout);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use horolog_wire::path_probe::{Header, PathDatagramKind};

    use super::*;
    use crate::path::serve::RunningFarEnd;
    use crate::path::serve::udp::{UdpListenOptions, start_service};
    use crate::path::udp::UdpRowPlan;

    /// A far end of an older version does not announce short probes, and would not echo them.
    #[test]
    fn a_far_end_without_short_probes_is_distinguished_from_an_unreachable_one() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let far = std::thread::spawn(move || {
            let mut bytes = [0; 64];
            let (len, from) = socket.recv_from(&mut bytes).unwrap();
            let (hello, _) = Header::parse(&bytes[..len]).unwrap();
            Header::new(PathDatagramKind::Welcome, 1, hello.sequence).emit(&mut bytes);
            socket.send_to(&bytes[..len], from).unwrap();
        });
        let usual = PathUdpOptions::new(at.to_string().parse().unwrap());
        let rows = vec![UdpRowPlan { length: 16, load_ratio: 0.0 }];
        let error = identify_far_end(&PathUdpOptions { rows, ..usual }, at).unwrap_err();
        far.join().unwrap();
        assert!(!error.is_usage_error() && error.to_string().contains("at least 48"), "{error}");
    }

    /// Ending a session that was never begun took as long as giving up a far end.
    #[test]
    fn a_far_end_that_answers_is_found_without_a_wait() {
        let mut far = RunningFarEnd::new();
        let address = "127.0.0.1:0".parse().unwrap();
        let options = UdpListenOptions { address, busy_polling: false, rate_max: 1_000 };
        start_service(&mut far, &options).unwrap();
        let at = far.services()[0].address;
        let options = PathUdpOptions::new(at.to_string().parse().unwrap());
        let begun = Instant::now();
        let found = identify_far_end(&options, at).unwrap();
        let took = begun.elapsed();
        assert!(found.same_clock && took < Duration::from_secs(1), "{took:?}");
        let _ = far.shut_down();
    }
}
