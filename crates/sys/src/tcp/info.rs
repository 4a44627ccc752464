//! `TCP_INFO` in the kernel's layout (`struct tcp_info` in linux/tcp.h), parsed byte by byte.
//! Fields that an older kernel does not return are 0. `sock_diag`(7) returns the same bytes.

use std::time::Duration;

/// State of a TCP connection (RFC 9293).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// Data can flow in both directions.
    Established,
    /// Any other state, by its number in the kernel.
    Other(u8),
}

/// Kernel state of a TCP connection: the fields that explain why data does not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Number of the connection's state in the kernel.
    pub state_number: u8,
    /// Retransmission timeout (RTO).
    pub rto: Duration,
    /// Delayed acknowledgement timeout (ATO).
    pub ato: Duration,
    /// Largest payload of a sent segment, in bytes.
    pub mss: u32,
    /// Estimated payload of received segments, in bytes.
    pub receive_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacknowledged: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Variation of the round-trip time.
    pub rtt_variance: Duration,
    /// Shortest recent round-trip time.
    pub rtt_min: Duration,
    /// Slow start threshold, in segments.
    pub slow_start_threshold: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Retransmitted segments since the start of the connection.
    pub retransmitted: u32,
    /// Bytes written and not yet sent.
    pub not_sent: u32,
    /// Segments with data that were sent.
    pub data_segments_sent: u32,
    /// Received segments with data.
    pub data_segments_received: u32,
    /// Sent segments.
    pub segments_sent: u32,
    /// Received segments.
    pub segments_received: u32,
    /// Received bytes.
    pub bytes_received: u64,
    /// Bytes acknowledged by the remote end.
    pub bytes_acknowledged: u64,
    /// Time during which the receive window of the remote end limited sending.
    pub receive_window_limited: Duration,
}

/// Offsets of the fields in `struct tcp_info`, in bytes.
mod offsets {
    pub(super) const STATE: usize = 0;
    pub(super) const RTO: usize = 8;
    pub(super) const ATO: usize = 12;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RCV_MSS: usize = 20;
    pub(super) const UNACKED: usize = 24;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGS_OUT: usize = 136;
    pub(super) const SEGS_IN: usize = 140;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const RWND_LIMITED: usize = 176;
}

/// Number of the established state (`TCP_ESTABLISHED` in `linux/tcp_states.h`).
const ESTABLISHED: u8 = 1;

impl TcpInfo {
    /// Length of the part of `struct tcp_info` that is read, in bytes.
    pub(crate) const BYTES: usize = 192;

    /// Parses `struct tcp_info`; fields beyond the end of `bytes` are 0.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
            field.copied().map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
            field.copied().map_or(0, u64::from_ne_bytes)
        };
        let us = |at| Duration::from_micros(word(at).into());
        Self {
            state_number: bytes.get(offsets::STATE).copied().unwrap_or(0),
            rto: us(offsets::RTO),
            ato: us(offsets::ATO),
            mss: word(offsets::SND_MSS),
            receive_mss: word(offsets::RCV_MSS),
            unacknowledged: word(offsets::UNACKED),
            rtt: us(offsets::RTT),
            rtt_variance: us(offsets::RTTVAR),
            rtt_min: us(offsets::MIN_RTT),
            slow_start_threshold: word(offsets::SND_SSTHRESH),
            cwnd: word(offsets::SND_CWND),
            retransmitted: word(offsets::TOTAL_RETRANS),
            not_sent: word(offsets::NOTSENT_BYTES),
            data_segments_sent: word(offsets::DATA_SEGS_OUT),
            data_segments_received: word(offsets::DATA_SEGS_IN),
            segments_sent: word(offsets::SEGS_OUT),
            segments_received: word(offsets::SEGS_IN),
            bytes_received: long(offsets::BYTES_RECEIVED),
            bytes_acknowledged: long(offsets::BYTES_ACKED),
            receive_window_limited: Duration::from_micros(long(offsets::RWND_LIMITED)),
        }
    }

    /// Returns the connection's state.
    #[must_use]
    pub const fn state(&self) -> TcpState {
        match self.state_number {
            ESTABLISHED => TcpState::Established,
            other => TcpState::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_kernel_puts_them() {
        use std::mem::offset_of;
        assert_eq!(offsets::RTO, offset_of!(libc::tcp_info, tcpi_rto));
        assert_eq!(offsets::ATO, offset_of!(libc::tcp_info, tcpi_ato));
        assert_eq!(offsets::UNACKED, offset_of!(libc::tcp_info, tcpi_unacked));
        assert_eq!(offsets::RTT, offset_of!(libc::tcp_info, tcpi_rtt));
        assert_eq!(offsets::SND_CWND, offset_of!(libc::tcp_info, tcpi_snd_cwnd));
        assert_eq!(offsets::TOTAL_RETRANS, offset_of!(libc::tcp_info, tcpi_total_retrans));
    }

    #[test]
    fn what_is_cut_off_is_zero() {
        let mut bytes = [0; TcpInfo::BYTES];
        bytes[offsets::STATE] = ESTABLISHED;
        bytes[offsets::SND_CWND..][..4].copy_from_slice(&10_u32.to_ne_bytes());
        bytes[offsets::NOTSENT_BYTES..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        let whole = TcpInfo::parse(&bytes);
        assert_eq!((whole.cwnd, whole.not_sent), (10, 7));
        let short = TcpInfo::parse(&bytes[..104]);
        assert_eq!((short.cwnd, short.not_sent), (10, 0));
        assert_eq!(TcpInfo::parse(&[]).state(), TcpState::Other(0));
    }
}
