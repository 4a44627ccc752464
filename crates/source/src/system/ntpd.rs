//! ntpd for the source `system`: requests its system variables by mode 6 (RFC 9327).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use horolog_time::Span;
use horolog_wire::control::{DATA_MAX, HEADER_LEN, Header, SYSTEM_VARIABLES, SystemVariables};
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use super::{DAEMON_TIMEOUT, TimeDaemon, query_error, time_until, unspecified_address};
use crate::{ClockReadings, Slew, SourceError, SourceEstimate};

/// Largest response in bytes, above the length of the requested variables.
const RESPONSE_MAX: usize = 4_096;
/// Most datagrams read before the request counts as unanswered.
const DATAGRAMS_MAX: usize = 32;

/// Client of a running ntpd.
pub(super) struct NtpdClient {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    sequence: u16,
}

impl NtpdClient {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, socket: None, sequence: 0 }
    }

    fn open(&mut self) -> io::Result<UdpSocket> {
        if let Some(socket) = self.socket.take() {
            return Ok(socket);
        }
        let socket = UdpSocket::bind(unspecified_address(self.address))?;
        socket.connect(self.address)?;
        Ok(socket)
    }

    /// Sends the request and reassembles the response; the inner error is the status of a refusal.
    fn exchange(&mut self) -> io::Result<Result<Vec<u8>, u16>> {
        let socket = self.open()?;
        self.sequence = self.sequence.wrapping_add(1);
        let request = Header::read_variables(self.sequence);
        let mut packet = [0; HEADER_LEN + DATA_MAX];
        let length = request.emit(SYSTEM_VARIABLES.as_bytes(), &mut packet);
        socket.send(&packet[..length])?;
        let (mut data, deadline) = (Vec::new(), Instant::now() + DAEMON_TIMEOUT);
        for _ in 0..DATAGRAMS_MAX {
            socket.set_read_timeout(Some(time_until(deadline)?))?;
            let length = socket.recv(&mut packet)?;
            let Ok((header, fragment)) = Header::parse(&packet[..length]) else { continue };
            if !header.is_response_to(&request) {
                continue;
            }
            if header.error {
                self.socket = Some(socket);
                return Ok(Err(header.status));
            }
            // Fragments from a local daemon arrive in order.
            let expected = usize::from(header.offset) == data.len();
            if !expected || data.len() + fragment.len() > RESPONSE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            data.extend_from_slice(fragment);
            if !header.more {
                self.socket = Some(socket);
                return Ok(Ok(data));
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl TimeDaemon for NtpdClient {
    fn query(&mut self, readings: &ClockReadings) -> Result<SourceEstimate, SourceError> {
        let target = format!("ntpd at {}", self.address);
        let unusable = |what: &str| SourceError::Unusable(format!("{target} {what}"));
        let data = match self.exchange().map_err(|error| query_error(&target, &error))? {
            Ok(data) => data,
            Err(status) => {
                return Err(unusable(&format!(
                    "refuses to report its state (status {status:#06x})"
                )));
            }
        };
        let variables = SystemVariables::parse(&data)
            .map_err(|_| unusable("reports its state in an unknown format"))?;
        let in_range = (1..STRATUM_UNSYNCHRONISED).contains(&variables.stratum);
        if variables.leap == LeapIndicator::Unsynchronised || !in_range {
            return Err(unusable("reports that it is not synchronised"));
        }
        Ok(source_estimate(&variables, readings))
    }
}

fn source_estimate(variables: &SystemVariables, readings: &ClockReadings) -> SourceEstimate {
    SourceEstimate {
        at: readings.monotonic,
        offset: Span::ZERO,
        frequency_ppb: 0,
        slew: Slew::default(),
        uncertainty: Span::ZERO,
        leap: variables.leap,
        tai_minus_utc_s: None,
        next_leap: None,
        stratum: variables.stratum,
        reference_id: variables.reference_id,
        reference: variables.reference.to_utc(readings.realtime()),
        root_delay: variables.root_delay,
        root_dispersion: variables.root_dispersion,
        is_unconfirmed: false,
        host_clock: None,
    }
}
